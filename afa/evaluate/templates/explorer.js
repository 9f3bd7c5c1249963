// What the page shows of a choice and of a step, and what the reader does. Names come from data that anyone may have
// written: they reach the page as text nodes only.
const MOVE = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
const LISTS = { patient: "patient", rule: "cell", score: "score" };
const REST = 250; // milliseconds on a step before the address says so

const $ = (id) => document.getElementById(id);
const summary = JSON.parse($("summary").textContent);
const { cells, patients, scores, k, said } = summary;
const readable = (name) => name.replaceAll("_", " ");
const entities = summary.entities.map(readable);
const features = summary.features.map(readable);
const OPENS_AT = 10;
const OURS = "frontier";
const ours = cells.findIndex((c) => c.rule === OURS);
const SIDE_BY_SIDE = ours < 0 || ours === summary.shown ? [] : [summary.shown, ours];
const state = { patient: summary.typical, cell: summary.shown, score: 0, t: OPENS_AT };
const unpackedSteps = new Map();
let chart = null;
let last = features.length; // of the run that is shown: what was not measured is not asked for
let steps = null;
let path = null;
let besides = []; // what the planners that stand side by side do with this patient: [cell, path]
let resting = 0;

function filled(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name in made && !(made instanceof SVGElement)) made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function element(tag, properties = {}, ...children) { return filled(document.createElement(tag), properties, children); }

function drawn(tag, attributes, ...children) { return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children); }

function cell(text, className = "") { return element("td", { className }, text); }

/** A row of heads, each a text or a text with its class. */
function headRow(heads) {
  return element("tr", {}, ...heads.map((head) => {
    const [text, className] = [head].flat();
    return element("th", { scope: "col", className: className ?? "" }, text);
  }));
}

function fillTable(id, heads, rows) {
  $(id).tHead.replaceChildren(headRow(heads));
  $(id).tBodies[0].replaceChildren(...rows);
}

function number(value) {
  if (value === 0) return "0";
  if (value < 0.001) return value.toExponential(1);
  return value >= 100 ? String(Math.round(value)) : value.toPrecision(3);
}

function signed(value) { return (value < 0 ? "\u2212" : "") + number(Math.abs(value)); }

function count(n, one, many) { return `${n} ${n === 1 ? one : many}`; }

function swatch(style) {
  const line = drawn("line", { x2: 32, y1: 6, y2: 6, stroke: style.colour, "stroke-width": 2.5, "stroke-dasharray": style.dash.join(" ") });
  return drawn("svg", { width: 32, height: 12, "aria-hidden": "true" }, line);
}

/* ---- what is fixed ---- */

function writeHead() {
  const title = `Acquisition explorer: ${summary.cohort}`;
  document.title = title;
  $("title").textContent = title;
  const series = summary.series ? [element("span", { className: "badge" }, `real series ${summary.series}`)] : [];
  const origin = summary.simulated ? [element("span", { className: "badge simulated" }, "simulated cohort")] : series;
  $("subtitle").append(...origin, " ", summary.title);
  $("scope").textContent =
    `This page shows step by step which feature a rule measures next, for ${patients.length} of ${summary.cohort_size} patients. `
    + `Bundle ${summary.bundle}, version ${summary.version}: ${entities.length} entities on ${features.length} features, `
    + `${summary.duels} duels. The question is which ${k === 1 ? "entity" : `${k} entities`} each patient's features support most. `
    + (summary.schedule === "every" ? "Every rule computes its gains again after each measurement." : `Gains are computed again by the schedule ${summary.schedule}.`);
  $("made").textContent = `This page is complete in one file and uses no network. Charts by BokehJS ${$("library").dataset.version} (BSD licence).`;
}

function fillChoices() {
  patients.forEach((patient, i) => $("patient").append(new Option(patient.name, String(i))));
  cells.forEach((c, i) => $("rule").append(new Option(cellName(c), String(i))));
  scores.forEach((name, i) => $("score").append(new Option(name, String(i))));
  $("patient-note").textContent = patients.length === summary.cohort_size ? "All patients of the cohort." : summary.chosen;
  $("patient").value = String(state.patient);
  $("ranking-note").textContent = "Lines mark entities that are in the top at full observation, as in the chart.";
}

/* ---- what follows the choice of patient, rule and score ---- */

/** A rule that has a background is read by it, and no other rule can be. */
function fittingScore(change) {
  const run = steps.runs[state.cell];
  const ours = scores.indexOf("background");
  const other = state.score >= run.places.length || (state.score === ours && change.cell !== undefined);
  if (change.cell !== undefined && run.probability && run.guide === ours) state.score = ours;
  else if (other) state.score = run.guide;
  [...$("score").options].forEach((option, i) => { option.disabled = i >= run.places.length; });
  $("score").value = String(state.score);
}

async function choose(change) {
  Object.assign(state, change);
  document.body.dataset.ready = "";
  const asked = state.patient;
  const found = await stepsOf(asked);
  if (asked !== state.patient) return;
  steps = found;
  fittingScore(change);
  last = steps.runs[state.cell].order.length;
  $("t").max = String(last);
  path = pathOf(steps.runs[state.cell], state.score);
  const c = cells[state.cell];
  besides = SIDE_BY_SIDE.map((i) => [i, pathOf(steps.runs[i], steps.runs[i].guide)]);
  $("rule-note").textContent = `${said.rules[c.rule] ?? "A user-defined rule."} ${c.rule === OURS ? "" : said.gains[c.gain] ?? ""}`;
  $("score-note").textContent = said.scores[scores[state.score]] ?? "";
  setJump($("to-settled"), `Top ${k} settled`, path.settled);
  setJump($("to-certified"), "Certified", path.certified);
  drawRanks();
  fillSteps();
  show(state.t);
  document.body.dataset.ready = "true";
}

function setJump(button, what, t) {
  button.textContent = t === null ? `${what}: never` : `${what}: t = ${t}`;
  button.setAttribute("aria-disabled", String(t === null));
  button.dataset.t = t ?? "";
}

function styleOf(v) {
  const i = path.order[last].slice(0, k).indexOf(v);
  return i < 0 ? null : STYLES[i % STYLES.length];
}

function fillSteps() {
  const c = cells[state.cell];
  const unit = c.rule === OURS ? "Weight" : c.gain ? "Gain, nats" : "Unary, nats";
  const heads = [["t", "number"], "Feature", "Value", [unit, "number"], ["Resolved", "number"], "Certified", `Enters (+) or leaves (\u2212) the top ${k}`];
  const rows = path.rank.map((ranks, t) => {
    const feature = t ? path.run.order[t - 1] : null;
    const moved = t ? entities.map((name, v) => [name, (ranks[v] <= k) - (path.rank[t - 1][v] <= k)]).filter(([, by]) => by) : [];
    const change = moved.sort((a, b) => b[1] - a[1]).map(([name, by]) => `${by > 0 ? "+" : "\u2212"}\u00A0${name}`).join(", ");
    const row = element("tr", {},
      element("td", { className: "number" }, element("button", { type: "button", tabIndex: -1, "aria-label": `Go to step ${t}` }, String(t))),
      element("th", { scope: "row" }, t ? features[feature] : "(start)"),
      cell(t ? ARROWS.get(steps.values[feature]) : "", "plain"),
      cell(t ? number(path.run.chosen_gain[t - 1]) + (path.fallback.has(t) ? " (fallback)" : "") : "", "number"),
      cell(String(path.resolved[t]), "number"),
      cell(isCertified(t) ? "yes" : "no"),
      cell(t ? change : path.order[0].slice(0, k).map((v) => `+\u00A0${entities[v]}`).join(", "), "changes"),
    );
    row.dataset.t = t;
    return row;
  });
  fillTable("steps", heads, rows);
}

/* ---- what follows the step ---- */

function show(asked) {
  const t = Math.min(Math.max(asked, 0), last);
  state.t = t;
  const slider = $("t");
  slider.value = String(t);
  slider.setAttribute("aria-valuetext", `${t} of ${last}${t ? `, ${features[path.run.order[t - 1]]}` : ""}`);
  $("taken").textContent = `${t} of ${last}`;
  for (const [id, out] of [["first", t === 0], ["previous", t === 0], ["next", t === last], ["last", t === last]]) $(id).setAttribute("aria-disabled", String(out));
  writeStory(t);
  writeBesides(t);
  writeFacts(t);
  writeWhy(t);
  writeRanking(t);
  chart.cursor.location = t;
  markRow(t);
  window.clearTimeout(resting);
  resting = window.setTimeout(keepLink, REST);
  document.body.dataset.t = String(t);
}

/** One sentence on where this patient stands. */
function writeStory(t) {
  const top = path.order[t].slice(0, k).map((v) => entities[v]).join(", ");
  const known = t ? `After ${t} of ${last} measurements` : "Before any measurement";
  const final = path.found[t] === k ? "which is also the answer when everything is measured" : `${path.found[t]} of ${k} of which are still there when everything is measured`;
  $("story").textContent = `${known} ${patients[state.patient].name} is most like ${top}, ${final}; ${path.resolved[t] ? `${path.resolved[t]} of ${summary.duels} duels can no longer change` : `each of the ${summary.duels} duels can still change`}.`;
}

/** The planner that is shown first and the one with a background, after as many measurements. */
function writeBesides(t) {
  $("besides").hidden = !besides.length;
  fillTable("besides-table", ["Planner", ["Measured last", "last"], `Top ${k} after ${count(t, "measurement", "measurements")}`, ["Final", "number"], ["Sure", "number"]], besides.map(([i, own]) => {
    const feature = t ? own.run.order[t - 1] : null;
    const sure = own.run.probability;
    return element("tr", {},
      element("th", { scope: "row" }, i === ours ? "ours, with a background" : isPapers(cells[i]) ? "the paper's rule" : cellName(cells[i])),
      cell(t ? `${features[feature]} ${ARROWS.get(steps.values[feature])}` : "\u2013", "last"),
      cell(own.order[t].slice(0, k).map((v) => entities[v]).join(", ")),
      cell(`${own.found[t]} of ${k}`, "number"),
      cell(sure ? percent(sure[t]) : "\u2013", "number"));
  }));
  const named = besides.map(([i, own]) => `${cellName(cells[i])}, ranked by ${scores[own.run.guide]}`);
  $("besides-names").textContent = besides.length ? `Planner one: ${named[0]}. Planner two: ${named[1]}.` : "";
}

function isPapers(c) { return c.rule === "priority_clusters" && c.gain === "cmi"; }

function percent(share) { return `${(100 * share).toFixed(share > 0.995 && share < 1 ? 1 : 0)} %`; }

function writeFacts(t) {
  const feature = t ? path.run.order[t - 1] : null;
  const hasGain = cells[state.cell].gain !== "";
  const open = t ? summary.duels - path.resolved[t - 1] : 0;
  const inHindsight = t >= path.settled ? `in hindsight: settled since t = ${path.settled}` : `in hindsight: it changes until t = ${path.settled}`;
  const isOurs = cells[state.cell].rule === OURS;
  const sure = path.run.probability;
  const guide = scores[path.run.guide];
  const chosen_gain = t ? number(path.run.chosen_gain[t - 1]) : "\u2013";
  const chosenBy = isOurs ? ["Weight of the choice", chosen_gain, "how much the choice reduces the uncertainty about the top; no unit"]
    : [hasGain ? "Expected gain" : "Its effective unary", t ? `${chosen_gain} nats` : chosen_gain, t && hasGain ? `over ${count(open, "duel", "duels")} unresolved before this step` : ""];
  const facts = [
    ["Measured", t ? features[feature] : "nothing yet", t ? (path.fallback.has(t) ? "fallback: no feature had a gain" : "chosen by the rule") : "the ranking is that of the bundle alone"],
    ["Value", t ? VALUES.get(steps.values[feature]) : "\u2013", ""],
    chosenBy,
    ["Duels resolved", `${path.resolved[t]} of ${summary.duels}`, t ? `${path.resolved[t] - path.resolved[t - 1]} by this step` : ""],
    ["Certainty", isCertified(t) ? `top ${k} certified` : `top ${k} not certified`, isCertified(t) ? `since t = ${path.certified}` : path.certified === null ? `and never: a duel across the boundary ends in a tie${last < features.length ? ", or hangs on what was not measured" : ""}` : ""],
    [`Top ${k} by ${scores[state.score]}`, `${path.found[t]} of ${k} are final`, inHindsight],
    ...(sure ? [[`Top ${k} is right with probability`, percent(sure[t]), `by ${summary.background}`]] : []),
    ["Margin of the top", `${signed(path.run.margin[t])} nats`, `${guide} of ${entities[path.guided[t][k - 1]]}, the last inside, against ${entities[path.guided[t][k]]}`],
  ];
  $("step-title").textContent = t ? `Step ${t}: ${features[feature]}` : "Start: nothing measured";
  $("facts").replaceChildren(...facts.map(([term, value, more]) => element("div", {}, element("dt", {}, term), element("dd", {}, value), element("dd", {}, more))));
}

/** Why this feature: in words, what came next, and what each result would have done to the top. */
function writeWhy(t) {
  const why = state.cell === summary.shown && t ? steps.why[t - 1] : undefined;
  if (!why) {
    const kept = t ? `This page has reasons for the first ${summary.explained} choices of ${cellName(cells[summary.shown])}.` : "";
    $("why").replaceChildren(...(kept ? [element("p", { className: "note" }, kept)] : []));
    return;
  }
  const feature = path.run.order[t - 1];
  const before = path.guided[t - 1].slice(0, k);
  const list = (all) => all.map((v) => entities[v]).join(", ");
  const rows = why.then.map(([value, top]) => {
    const [enters, leaves] = [top.filter((v) => !before.includes(v)), before.filter((v) => !top.includes(v))];
    const change = enters.length ? `${list(enters)} for ${list(leaves)}` : top.every((v, i) => v === before[i]) ? "nothing" : "the order alone";
    const row = element("tr", {}, element("th", { scope: "row" }, VALUES.get(value)), cell(change));
    if (value === steps.values[feature]) row.setAttribute("aria-current", "true");
    return row;
  });
  const next = why.others.length ? ` Next in line: ${why.others.map((j) => features[j]).join(", ")}.` : "";
  $("why").replaceChildren(
    element("p", {}, element("strong", {}, `Why ${features[feature]}: `), `${readable(why.reason)}.${next}`),
    element("table", {}, element("thead", {}, headRow(["Result", `Would change in the top ${k}`])), element("tbody", {}, ...rows)),
  );
}

function writeRanking(t) {
  const labels = patients[state.patient].labels;
  const labelled = labels.some((label) => label !== null);
  $("ranking-title").textContent = `Ranking after ${count(t, "measurement", "measurements")}`;
  const heads = ["Rank", "Entity", "Line", "Moved", "Final", ...(labelled ? ["Label"] : [])];
  fillTable("ranking", heads, path.order[t].map((v, i) => {
    const style = styleOf(v);
    const by = t ? path.rank[t - 1][v] - path.rank[t][v] : 0;
    const row = element("tr", { className: [i < k ? "inside" : "", i === k - 1 ? "boundary" : ""].join(" ") },
      cell(`${i + 1}${path.tied[t].has(i) || path.tied[t].has(i + 1) ? " =" : ""}`, "plain"),
      element("th", { scope: "row" }, entities[v]),
      style ? element("td", {}, swatch(style), element("span", { className: "unseen" }, "on top at the end")) : cell(""),
      cell(by > 0 ? `\u25B2 ${by}` : by < 0 ? `\u25BC ${-by}` : "", "plain"),
      cell(String(path.rank[last][v]), "plain"));
    if (labelled) row.append(cell(labels[v] === null ? "\u2013" : labels[v] ? "yes" : "no"));
    return row;
  }));
}

function markRow(t) {
  const before = $("steps").querySelector("tr[aria-current]");
  if (before) {
    before.removeAttribute("aria-current");
    before.querySelector("button").tabIndex = -1;
  }
  const row = $("steps").tBodies[0].rows[t];
  row.setAttribute("aria-current", "step");
  row.querySelector("button").tabIndex = 0;
  const box = $("steps-scroll");
  const above = row.offsetTop - $("steps").tHead.offsetHeight;
  if (above < box.scrollTop || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = above - box.clientHeight / 3;
}

/* ---- the reader's hands ---- */

function on(id, event, act) { $(id).addEventListener(event, act); }

function listen() {
  for (const [id, key] of Object.entries(LISTS)) on(id, "change", () => choose({ [key]: Number($(id).value) }));
  on("choices", "submit", (event) => event.preventDefault());
  on("t", "input", () => show(Number($("t").value)));
  const steps = { first: () => 0, previous: () => state.t - 1, next: () => state.t + 1, last: () => last };
  for (const [id, to] of Object.entries(steps)) on(id, "click", () => show(to()));
  for (const id of ["to-settled", "to-certified"]) {
    on(id, "click", () => { if ($(id).dataset.t !== "") show(Number($(id).dataset.t)); });
  }
  $("steps").tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && !window.getSelection().toString()) show(Number(row.dataset.t));
  });
  window.addEventListener("hashchange", () => { if (follow()) choose({}); });
  document.addEventListener("keydown", (event) => {
    const move = MOVE[event.key];
    const elsewhere = event.target.closest("select") || (Math.abs(move) !== 1 && event.target.closest(".scroll"));
    if (move === undefined || elsewhere || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(state.t + move);
  });
}

/* ---- an address for what is seen ---- */

/** The address of the page says what is shown, so that it can be sent; not inside the report, which has its own. */
function keepLink() {
  if (location.protocol === "about:") return;
  const said = { patient: patients[state.patient].name, rule: cellName(cells[state.cell]), score: scores[state.score], t: state.t };
  history.replaceState(null, "", `#${new URLSearchParams(said)}`);
}

/** Goes where the address asks to, and says whether it asks for anything; what it names wrongly stays as it is. */
function follow() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = Object.entries({
    patient: patients.findIndex((patient) => patient.name === given.get("patient")),
    cell: cells.findIndex((c) => cellName(c) === given.get("rule")),
    score: scores.indexOf(given.get("score")),
    t: /^\d+$/u.test(given.get("t") ?? "") ? Number(given.get("t")) : -1,
  }).filter(([, value]) => value >= 0);
  Object.assign(state, Object.fromEntries(found));
  for (const [id, key] of Object.entries(LISTS)) $(id).value = String(state[key]);
  return found.length > 0;
}

async function start() {
  writeHead();
  if (typeof DecompressionStream === "undefined") {
    $("loading").textContent = "This browser cannot unpack the page: it needs one of 2023 or later.";
    return;
  }
  const script = document.createElement("script");
  script.textContent = await (await unpacked("library")).text();
  document.head.append(script);
  fillChoices();
  follow();
  $("content").hidden = false;
  await makeChart();
  listen();
  await choose({});
  $("loading").hidden = true;
}

start();
