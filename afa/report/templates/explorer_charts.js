// The looks of the page that tell values and lines apart.
const VALUES = new Map([[-1, "\u22121, low"], [0, "0, usual"], [1, "+1, high"]]);
const ARROWS = new Map([[-1, "\u25BC \u22121"], [0, "\u25A0 0"], [1, "\u25B2 +1"]]);
// Colours that the colour-blind tell apart; dash and marker tell the lines apart in grey.
const STYLES = [
  { colour: "#000000", dash: [], marker: "circle" },
  { colour: "#D55E00", dash: [9, 4], marker: "square" },
  { colour: "#0072B2", dash: [2, 3], marker: "diamond" },
  { colour: "#009E73", dash: [12, 3, 2, 3], marker: "triangle" },
  { colour: "#A0478C", dash: [5, 2], marker: "inverted_triangle" },
  { colour: "#7A5C00", dash: [14, 3, 2, 3, 2, 3], marker: "star" },
];
const RESOLVED = { colour: "#0072B2", dash: [] };
const FOUND = { colour: "#D55E00", dash: [6, 3] };
const MARKED = 14;
const XY = { x: "x", y: "y" };

// The data: unpacked when they are asked for, and what one run of a patient says by t.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

async function stepsOf(patient) {
  if (!unpackedSteps.has(patient)) unpackedSteps.set(patient, await (await unpacked(`steps-${patient}`)).json());
  return unpackedSteps.get(patient);
}

/** What one patient's run says, by t: the order of entities, best first, their ranks, and positions that tie. */
function pathOf(run, score) {
  const places = run.places[score];
  const sorted = (of) => [...of.keys()].sort((v, w) => of[v] - of[w]); // names settle ties: the sort is stable
  const order = places.map(sorted);
  const tied = order.map((best, t) => new Set([...best.keys()].filter((i) => i && places[t][best[i]] === places[t][best[i - 1]])));
  const rank = order.map((best) => best.reduce((ranks, v, i) => Object.assign(ranks, { [v]: i + 1 }), []));
  const found = rank.map((ranks) => order[last].slice(0, k).filter((v) => ranks[v] <= k).length);
  const { resolved, certified } = run;
  return { run, order, tied, rank, guided: run.places[0].map(sorted), resolved, found, settled: run.settled[score], certified, fallback: new Set(run.fallback) };
}

function cellName(c) {
  const several = cells.filter((other) => other.rule === c.rule && other.gain === c.gain).length > 1;
  return several ? `${c.rule}, order ${c.seed}` : c.rule;
}

function isCertified(t) { return path.certified !== null && t >= path.certified; }

// The three charts: made once, given other lines when the choice changes, and a cursor that follows the step.
/** A figure with its cursor and the two marks of the top, in the element of that id. */
function newChart(id, height, yLabel) {
  const { Label, Plotting, Range1d, Span } = window.Bokeh;
  const figure = Plotting.figure({
    sizing_mode: "stretch_width", height, tools: [], toolbar_location: null, min_border_right: 20, outline_line_color: null,
    x_range: new Range1d({ start: -1, end: last + 1 }), y_range: new Range1d({ start: 0, end: 1 }),
    x_axis_label: "measurements taken", y_axis_label: yLabel,
  });
  for (const axis of [figure.xaxis, figure.yaxis]) {
    axis.axis_label_text_font_style = "normal";
    axis.axis_label_text_color = axis.major_label_text_color = "#1a1a1a";
    axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px";
    axis.minor_tick_line_color = null;
  }
  figure.xgrid.grid_line_color = null;
  const marks = [["settled", [2, 3]], ["certified", [8, 4]]].map(([text, dash]) => {
    const line = new Span({ location: 0, dimension: "height", line_color: "#555555", line_dash: dash });
    const label = new Label({ x: 0, y: 0, text, text_font_size: "12px", text_color: "#1a1a1a", text_baseline: "top" });
    figure.add_layout(line);
    figure.add_layout(label);
    return { line, label };
  });
  const cursor = new Span({ location: 0, dimension: "height", line_color: "#1a1a1a", line_width: 2 });
  figure.add_layout(cursor);
  figure.on_event("tap", (event) => { if (Number.isFinite(event.x)) show(Math.round(event.x)); });
  charts[id] = { figure, cursor, marks, sources: [] };
  return charts[id];
}

/** A glyph whose data come later: `columns` are the names of these by property; its source joins those of the chart. */
function add(chart, glyph, columns, look) {
  const data = Object.fromEntries(Object.values(columns).map((name) => [name, []]));
  const fields = Object.fromEntries(Object.entries(columns).map(([property, field]) => [property, { field }]));
  const source = new window.Bokeh.ColumnDataSource({ data });
  chart.figure[glyph]({ ...fields, source, ...look });
  chart.sources.push(source);
}

/** A line that stays level until the next t at which it changes. */
function addLine(chart, style) {
  add(chart, "step", XY, { mode: "after", line_color: style.colour, line_dash: style.dash, line_width: style.width ?? 2 });
}

async function makeCharts() {
  const { BoxAnnotation, FixedTicker, Plotting } = window.Bokeh;
  const ranks = newChart("ranks", 300, "rank");
  ranks.figure.add_layout(new BoxAnnotation({ top: 0.5, bottom: k + 0.5, fill_color: "#ececec", fill_alpha: 1, line_color: null, level: "underlay" }));
  addLine(ranks, { colour: "#d4d4d4", dash: [], width: 1 });
  for (let i = 0; i < k; i += 1) {
    const style = STYLES[i % STYLES.length];
    addLine(ranks, style);
    add(ranks, "scatter", XY, { marker: style.marker, size: 8, fill_color: style.colour, line_color: style.colour });
  }
  const progress = newChart("progress", 190, "%");
  addLine(progress, RESOLVED);
  addLine(progress, FOUND);
  progress.figure.yaxis.ticker = new FixedTicker({ ticks: [0, 25, 50, 75, 100] });
  const worth = newChart("worth", 180, "nats");
  for (const fill of ["#0072B2", "#ffffff"]) {
    add(worth, "vbar", { x: "x", top: "y" }, { bottom: 0, width: 0.9, fill_color: fill, line_color: "#0072B2" });
  }
  add(worth, "segment", { x0: "x", x1: "x", y0: "low", y1: "high" }, { line_color: "#555555" });
  for (const id of Object.keys(charts)) {
    await Plotting.show(charts[id].figure, $(id));
    passOver($(id));
  }
}

/** A chart tells what it shows in its label: what the library draws inside is no stop of the Tab key. */
function passOver(root) {
  for (const node of root.querySelectorAll("*")) {
    if (node.tabIndex >= 0) node.tabIndex = -1;
    if (node.shadowRoot) passOver(node.shadowRoot);
  }
}

function frame(id, bottom, top, labelsAt, description) {
  const chart = charts[id];
  Object.assign(chart.figure.x_range, { end: last + 1 });
  Object.assign(chart.figure.y_range, { start: bottom, end: top });
  const [settled, certified] = chart.marks;
  const crowded = path.certified !== null && path.certified >= path.settled && path.certified - path.settled < 0.3 * last;
  for (const [mark, t, left] of [[settled, path.settled, crowded && path.settled > 0.2 * last], [certified, path.certified, false]]) {
    const before = left || t > 0.8 * last;
    mark.line.visible = mark.label.visible = t !== null;
    mark.line.location = t ?? 0;
    Object.assign(mark.label, { x: t ?? 0, y: labelsAt, text_align: before ? "right" : "left", x_offset: before ? -4 : 4 });
  }
  $(id).setAttribute("aria-label", description);
}

function drawRanks() {
  const top = path.order[last].slice(0, k);
  const byTime = (v) => path.rank.map((ranks) => ranks[v]);
  const lowest = Math.min(entities.length, Math.max(2 * k, ...top.flatMap(byTime).map((rank) => rank + 1)));
  const context = { x: [], y: [] };
  for (const v of entities.keys()) {
    if (top.includes(v)) continue;
    context.x.push(...path.rank.keys(), NaN);
    context.y.push(...byTime(v).map((rank) => (rank > lowest + 0.5 ? NaN : rank)), NaN);
  }
  const [others, ...lines] = charts.ranks.sources;
  others.data = context;
  top.forEach((v, i) => {
    const ranks = byTime(v);
    const step = Math.max(1, Math.round(last / MARKED));
    const shown = ranks.map((_, t) => t).filter((t) => t % step === Math.round(i * step / k));
    lines[2 * i].data = { x: [...ranks.keys()], y: ranks };
    lines[2 * i + 1].data = { x: shown, y: shown.map((t) => ranks[t]) };
  });
  $("ranks-title").textContent = `Rank by ${scores[state.score]}, step by step`;
  $("ranks-note").textContent = `Those on top at full observation, in the lines of the ranking; others in light grey, as far down as these go. The top ${k} is shaded.`;
  const every = lowest > 12 ? 5 : 1;
  const ticks = path.order[0].map((_, i) => i + 1).filter((rank) => rank <= lowest && (rank === 1 || rank % every === 0));
  charts.ranks.figure.yaxis.ticker = new window.Bokeh.FixedTicker({ ticks });
  frame("ranks", lowest + 0.5, -0.09 * lowest, -0.08 * lowest, `Ranks by ${scores[state.score]} against measurements taken. On top at full observation: `
    + `${top.map((v) => entities[v]).join(", ")}. The set is settled from step ${path.settled}.`);
}

function drawProgress() {
  const share = (part, whole) => ({ x: [...part.keys()], y: part.map((n) => (whole ? 100 * n / whole : 0)) });
  const [resolved, found] = charts.progress.sources;
  resolved.data = share(path.resolved, summary.duels);
  found.data = share(path.found, k);
  $("progress-title").textContent = "Progress";
  $("progress-note").replaceChildren(
    element("span", { className: "mark" }, swatch(RESOLVED, false), "duels resolved"), " \u00A0 ",
    element("span", { className: "mark" }, swatch(FOUND, false), `share of the final top ${k} in the present one`),
  );
  frame("progress", -4, 124, 122, `Share of duels resolved, and of the final top ${k} found, against measurements taken. `
    + `Resolved at the end: ${path.resolved[last]} of ${summary.duels}.`);
}

function drawWorth() {
  const gained = path.run.worth;
  const fellBack = path.run.fallback;
  const highest = Math.max(...gained, 1e-9);
  const hasGain = cells[state.cell].gain !== "";
  const [chosen, taken, ticks] = charts.worth.sources;
  const at = gained.map((_, i) => i + 1);
  const bars = (wanted) => ({ x: wanted, y: wanted.map((t) => gained[t - 1]) });
  chosen.data = bars(at.filter((t) => !path.fallback.has(t)));
  taken.data = bars(fellBack);
  ticks.data = { x: fellBack, low: fellBack.map(() => -0.1 * highest), high: fellBack.map(() => -0.03 * highest) };
  $("worth-title").textContent = hasGain ? `Gain of each step, ${cells[state.cell].gain}` : "Effective unary of each step";
  $("worth-note").textContent = hasGain
    ? "Summed over the duels that were open when the feature was chosen. Ticks below the axis: steps that fell back."
    : "Summed over the entities when the feature was chosen; the rule looks at no gain.";
  frame("worth", -0.12 * highest, 1.3 * highest, 1.28 * highest, `${hasGain ? "Gain" : "Effective unary"} of the feature of each step, in nats; `
    + `largest ${number(highest)}. ${count(fellBack.length, "step", "steps")} fell back.`);
}
