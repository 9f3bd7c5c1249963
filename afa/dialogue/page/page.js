"use strict";
// Shows the answers of the server and sends the requests of the user; the page computes nothing of the planner.
const token = new URLSearchParams(location.search).get("token") || "";
const at = (id) => document.getElementById(id);
const NAMES = { "-1": "low", 0: "usual", 1: "high" };
let greeting = null, state = null, chosen = {}, typed = {}, busy = false, asking = null, refusal = null;

async function ask(path, body) {
  const options = { headers: { "X-Token": token } };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  const answer = await fetch(path, options);
  if (answer.status === 204) return null;
  if (!answer.ok) throw new Error(answer.status === 403 ? "token" : "server");
  return answer.json();
}

function make(tag, content, properties = {}) {
  const element = Object.assign(document.createElement(tag), properties);
  for (const part of [content].flat()) if (part !== null && part !== undefined) element.append(part);
  return element;
}

// A name, or a sentence with names, that may break after each underscore.
const named = (name) => name.split(/(?<=_)/).flatMap((part, i) => (i ? [make("wbr", []), part] : [part]));

// Returns the display name of an entity or a feature.
const shown = (name) => greeting.display_names[name] || name;

function tell(words) {
  at("message").textContent = words || "";
  at("message").hidden = !words;
}

async function say(request) {
  if (busy || !state) return;
  busy = true;
  document.body.dataset.busy = "true";
  try {
    const { answer, state: now } = await ask("say", { step: state.step, request });
    refusal = answer.ok ? null : answer;
    const error = answer.ok ? null : answer.error;
    tell(error ? `${error.where}: found ${error.found}; expected ${error.expected}. Next step: ${error.next_step}.` : "");
    if (answer.ok) at("echo").textContent = (answer.read || []).map((one) => one.words).join("; ");
    if (answer.ok || now.step !== state.step) show(now);
    else values(state.view);  // after a refused correction, show the valid value and keep text typed elsewhere
    return answer.ok && answer;
  } catch (error) {
    lost(error);
  } finally {
    busy = false;
    document.body.dataset.busy = "false";
  }
}

function lost(error) {
  const kept = state && state.kept ? ` Every step is saved in ${state.kept}: the same command continues the session.` : "";
  tell(error.message === "token" ? "This address has an old token: open the one that `afa serve` has printed." : `The server has ended; start it again.${kept}`);
  document.body.dataset.lost = "true";
}

async function follow() {
  for (;;) {
    try {
      const now = await ask(`news/${state.step}`);
      if (document.body.dataset.lost === "true") { document.body.dataset.lost = "false"; tell(""); }
      if (now && !busy && now.step !== state.step) show(now);
    } catch (error) {
      lost(error);
      if (error.message === "token") return;
      await new Promise((done) => setTimeout(done, 1500));
    }
  }
}

function word(feature, value) {
  const scale = greeting.scales[feature];
  return scale && scale.kind === "binary" ? (value ? "yes" : "no") : NAMES[value];
}

const hasRange = (feature) => Boolean(greeting.scales[feature] && greeting.scales[feature].usual);

// Returns the range of values that a code stands for, after the word for the code; empty without a range.
function range(feature, value) {
  const scale = greeting.scales[feature];
  if (scale && scale.meanings) return `: ${scale.meanings[value]}`;
  if (!hasRange(feature)) return "";
  const unit = scale.unit ? ` ${scale.unit}` : "";
  if (value < 0) return `: below ${scale.low}${unit}`;
  if (value > 0) return `: above ${scale.high}${unit}`;
  if (scale.low !== null && scale.high !== null) return `: ${scale.low} to ${scale.high}${unit}`;
  return scale.low !== null ? `: from ${scale.low}${unit}` : `: up to ${scale.high}${unit}`;
}

// Returns the definition of a feature, and the meaning of its grades.
const about = (scale) => [scale.definition, scale.grades].filter(Boolean).join(" ");

const meaning = (feature, value) => word(feature, value) + range(feature, value);

function possible(feature) {
  const scale = greeting.scales[feature];
  if (!scale || (scale.low === null && scale.high === null && scale.kind !== "binary")) return [-1, 0, 1];
  if (scale.kind === "binary") return [0, 1];
  return [-1, 0, 1].filter((value) => !(value < 0 && scale.low === null) && !(value > 0 && scale.high === null));
}

function choose(feature, value) {
  const asked = state.suggestion.features;
  if (asked.length === 1) return say({ do: "observe", values: { [feature]: value } });
  chosen[feature] = value;
  delete typed[feature];
  rows();
}

const isTyped = (feature) => (typed[feature] || "").trim() !== "";
const nothing = () => !state.suggestion.features.some((feature) => feature in chosen || isTyped(feature));

// Typed text is sent to the server unchanged, where the reader of `afa plan` parses it.
function take() {
  const values = {}, texts = {};
  for (const feature of state.suggestion.features) {
    if (isTyped(feature)) texts[feature] = typed[feature].trim();
    else if (feature in chosen) values[feature] = chosen[feature];
  }
  if (nothing()) return tell("Write a number, for example 12.5, or choose one of the buttons.");
  const some = (name, given) => (Object.keys(given).length ? { [name]: given } : {});
  say({ do: "observe", ...some("values", values), ...some("typed", texts) });
}

function row(feature) {
  const scale = greeting.scales[feature], parts = [], several = state.suggestion.features.length > 1;
  if (several && scale && about(scale)) parts.push(make("p", about(scale), { className: "definition" }));
  if (hasRange(feature)) {
    const field = make("input", [], { type: "text", inputMode: "decimal", autocomplete: "off", id: `number-${state.suggestion.features.indexOf(feature)}`, value: typed[feature] || "" });
    field.addEventListener("input", () => {
      typed[feature] = field.value;
      delete chosen[feature];
      for (const button of field.closest("fieldset").querySelectorAll("[aria-pressed]")) button.setAttribute("aria-pressed", "false");
      if (several) at("send").disabled = nothing();
    });
    const label = make("label", `${scale.unit ? `Measured, in ${scale.unit}:` : "Measured:"}`, { htmlFor: field.id });
    const form = make("form", [label, field, several ? null : make("button", "Take in", { className: "primary" })], { className: "number" });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      take();
    });
    parts.push(form);
  }
  const outcomes = state.view.outcomes[feature] || [];
  const buttons = possible(feature).map((value) => {
    const then = outcomes.find((one) => one.value === value);
    const words = then ? `then ${then.words}` : null;
    const has = state.patient[feature] === value ? " (this case)" : "";
    const button = make("button", [make("strong", `${meaning(feature, value)}${has}`), words && make("small", named(words))], { type: "button" });
    button.dataset.value = value;
    button.setAttribute("aria-pressed", String(chosen[feature] === value));
    button.addEventListener("click", () => choose(feature, value));
    return button;
  });
  parts.push(make("div", buttons, { className: "choice" }));
  return make("fieldset", [make("legend", several ? named(shown(feature)) : ""), ...parts]);
}

function rows() {
  const item = state.suggestion;
  at("rows").replaceChildren(...(item ? item.features.map(row) : []));
  if (!item || item.features.length === 1) return;
  const send = make("button", "Take these in", { type: "button", className: "primary", id: "send", disabled: nothing() });
  send.addEventListener("click", take);
  at("rows").append(send);
}

function show(now) {
  if (!state || state.step !== now.step) chosen = {}, typed = {};
  state = now;
  at("question").textContent = greeting.question + (state.named ? ` Patient ${state.named}.` : "");
  const item = state.suggestion, answer = state.answer, view = state.view;
  at("next-label").textContent = item ? "Measure next" : "Done";
  at("asked").replaceChildren(...(item ? [...named(shown(item.name)), view.priced ? ` (cost ${item.cost})` : ""] : named(answer.words)));
  const scale = item && greeting.scales[item.features[0]];
  at("definition").textContent = (item && item.features.length === 1 && scale && about(scale)) || "";
  at("reason").replaceChildren(...named((item ? item.reason : state.stopped) || ""));
  at("skip").disabled = !item;
  at("undo").disabled = !view.history.length;
  rows();
  at("others").replaceChildren();
  if (view.runners_up.length) at("others").append("Next best: ", ...named(view.runners_up.map(shown).join(", ")), ".");
  at("words").replaceChildren(...named(answer.words));
  at("spent").textContent = `${state.observed} measured${view.priced ? `, spent ${state.spent}` : ""}`;
  bars(view, answer);
  values(view);
  at("kept").textContent = state.kept ? `Kept in ${state.kept} after every step.` : "";
  at("keep").hidden = Boolean(state.kept);
  at("features").replaceChildren(...view.open.map((name) => make("option", [], { value: name, label: shown(name) })));
  if (asking) why(asking);
  else at("why").hidden = true;
  document.body.dataset.step = state.step;
  document.body.dataset.ready = "true";
}

function bars(view, answer) {
  at("of").textContent = `${view.assumption} A click on a name shows why.`;
  const inside = new Set(answer.top_k || []);
  const body = at("bars").tBodies[0];
  const known = new Map([...body.rows].map((line) => [line.dataset.entity, line]));
  const lines = view.order.map(({ entity, number, bar }) => {
    let line = known.get(entity);
    if (!line) {
      const button = make("button", named(shown(entity)), { type: "button", className: "entity", title: "why" });
      button.addEventListener("click", () => why(entity));
      line = make("tr", [make("th", button, { scope: "row" }), make("td", make("span", [], { className: "bar" })), make("td", "")]);
    }
    line.dataset.entity = entity;
    line.className = inside.has(entity) && state.observed && !answer.undecided.length ? "inside" : "";
    line.querySelector(".bar").style.width = `${Math.max(100 * bar, 0.5)}%`;
    line.cells[2].textContent = number.toFixed(2);
    return line;
  });
  body.replaceChildren(...lines);
}

// Shows the contribution of each finding for and against one entity; requested again after every step.
async function why(entity) {
  asking = entity;
  at("why").hidden = !entity;
  if (!entity) return;
  let found;
  try {
    found = (await ask("say", { step: state.step, request: { do: "why", entity } })).answer;
  } catch (error) {
    return lost(error);
  }
  if (!found.ok || asking !== entity) return;
  const of = found.ordered_by === "probability" ? "log-odds" : "score";
  at("why-title").replaceChildren("Why ", ...named(shown(entity)));
  at("why-of").textContent = found.findings.length
    ? `How much lower its ${of} would be without each finding, in nats: to the right for it, to the left against it. They need not add up.`
    : "Nothing has been measured yet.";
  const most = Math.max(1e-12, ...found.findings.map((one) => Math.abs(one.share)));
  const lines = found.findings.map(({ feature, share }) => {
    const bar = make("span", [], { className: share < 0 ? "bar against" : "bar for" });
    bar.style.width = `${(50 * Math.abs(share)) / most}%`;
    const said = make("small", state.view.said[feature]);
    const signed = `${share < 0 ? "−" : "+"}${Math.abs(share).toFixed(2)}`;
    return make("tr", [make("th", [...named(shown(feature)), " ", said], { scope: "row" }), make("td", bar, { className: "both" }), make("td", signed)]);
  });
  at("shares").tBodies[0].replaceChildren(...lines);
}

function values(view) {
  const reasons = {};
  for (const step of view.history) reasons[step.feature] = step.reason;
  const lines = Object.entries(view.values).map(([feature, value]) => {
    const control = hasRange(feature) ? rewriting(feature) : choosing(feature, value);
    control.setAttribute("aria-label", `correct ${shown(feature)}`);
    const said = make("span", view.said[feature], { className: hasRange(feature) ? "said" : "said printed" });
    return make("tr", [make("th", named(shown(feature)), { scope: "row" }), make("td", [said, control]), make("td", reasons[feature])]);
  });
  for (const feature of view.skipped) lines.push(make("tr", [make("th", named(shown(feature)), { scope: "row" }), make("td", "skipped"), make("td", "cannot be measured")]));
  at("values").tBodies[0].replaceChildren(...lines);
  at("values").hidden = !lines.length;
  at("nothing").hidden = Boolean(lines.length);
}

function choosing(feature, value) {
  const select = make("select", possible(feature).map((one) => make("option", meaning(feature, one), { value: one, selected: one === value })));
  select.addEventListener("change", () => say({ do: "correct", feature, value: Number(select.value) }));
  return select;
}

function rewriting(feature) {
  const field = make("input", [], { type: "text", autocomplete: "off", placeholder: "correct it" });
  field.addEventListener("change", async () => {
    if (field.value.trim()) await say({ do: "correct", feature, typed: field.value.trim() });
  });
  return field;
}

const skip = () => state.suggestion && say({ do: "skip", feature: state.suggestion.name });
const undo = () => state.view.history.length && say({ do: "undo" });
at("skip").addEventListener("click", skip);
at("undo").addEventListener("click", undo);
at("print").addEventListener("click", () => print());
at("known").addEventListener("submit", async (event) => {
  event.preventDefault();
  const feature = at("feature").value.trim(), text = at("value").value.trim();
  if (!feature) return tell("Write the name of what is known.");
  if (!text) return tell(`Write the value of ${shown(feature)}: ${takes(feature)}.`);
  if (await say({ do: "observe", typed: { [feature]: text } })) at("feature").value = at("value").value = "";
});
function takes(feature) {
  const scale = greeting.scales[feature];
  const words = scale ? scale.words : ["low", "usual", "high"];
  return words.join(", ") + (hasRange(feature) ? ` or a number (${scale.usual})` : "");
}
at("feature").addEventListener("input", () => {
  const feature = at("feature").value.trim(), scale = greeting.scales[feature];
  at("value").placeholder = scale ? takes(feature) : "low, usual, high or a number";
  at("value-words").replaceChildren(...(scale ? scale.words : ["low", "usual", "high"]).map((one) => make("option", [], { value: one })));
});
at("why-close").addEventListener("click", () => why(null));
at("new").addEventListener("click", () => leaving() && another({ do: "new" }));
at("open").addEventListener("click", () => leaving() && at("opened").click());
at("opened").addEventListener("change", async () => {
  const [file] = at("opened").files;
  if (!file) return;
  const text = await file.text();
  at("opened").value = "";
  refusal = null;
  if (await another({ do: "open", text }) || !refusal || !refusal.replay) return;
  const { found, expected } = refusal.error;
  const question = "Take its values in again on the bundle as it is now?";
  if (confirm([`Found ${found}; expected ${expected}.`, ...refusal.replay, question].join("\n\n"))) another({ do: "open", text, replay: true });
});
at("download").addEventListener("click", async () => {
  try {
    const answer = await fetch("session", { headers: { "X-Token": token } });
    if (!answer.ok) throw new Error(answer.status === 403 ? "token" : "server");
    const link = make("a", [], { href: URL.createObjectURL(await answer.blob()), download: `${state.named || "patient"}.yaml` });
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    lost(error);
  }
});
// Returns true if the session may be closed: it has no steps, is saved in a file, or the user agrees.
function leaving() {
  return Boolean(state) && (!state.view.history.length || Boolean(state.kept) || confirm("Leave this patient? Its steps are lost unless you have downloaded or saved them."));
}
async function another(request) {
  asking = null;
  const done = await say(request);
  if (done) tell((done.changed || []).join(". "));
  return done;
}
at("keep").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await say({ do: "save", file: at("file").value.trim() })) tell(`Saved as ${at("file").value.trim()}.`);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !state) return;
  if (event.target.closest("input, select")) return;
  const value = { "-": -1, l: -1, 0: 0, "+": 1, 1: 1, "=": 1, h: 1 }[event.key];
  if (value !== undefined && state.suggestion) {
    const next = state.suggestion.features.find((feature) => !(feature in chosen) && !isTyped(feature));
    if (next && possible(next).includes(value)) choose(next, value);
  } else if (event.key === "Enter" && at("send") && event.target === document.body) at("send").click();
  else if (event.key === "s") skip();
  else if (event.key === "u") undo();
  else if (event.key === "p") print();
  else return;
  event.preventDefault();
});

ask("start").then((start) => {
  greeting = start.greeting;
  const { name, version } = greeting.bundle;
  at("start").textContent = greeting.start;
  document.title = at("title").textContent = `${name} ${version}`;
  show(start.state);
  tell(greeting.changed.join(". "));
  follow();
}, lost);
