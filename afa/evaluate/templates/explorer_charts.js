// The looks of the page that tell values and lines apart.
const VALUES = new Map([[-1, "\u22121, low"], [0, "0, usual"], [1, "+1, high"]]);
const ARROWS = new Map([[-1, "\u25BC \u22121"], [0, "\u25A0 0"], [1, "\u25B2 +1"]]);
// Colours that the colour-blind tell apart; dashes tell the lines apart in grey.
const STYLES = [
  { colour: "#000000", dash: [] },
  { colour: "#D55E00", dash: [9, 4] },
  { colour: "#0072B2", dash: [2, 3] },
  { colour: "#009E73", dash: [12, 3, 2, 3] },
  { colour: "#A0478C", dash: [5, 2] },
  { colour: "#7A5C00", dash: [14, 3, 2, 3, 2, 3] },
];

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
  return { run, order, tied, rank, guided: run.places[run.guide].map(sorted), resolved, found, settled: run.settled[score], certified, fallback: new Set(run.fallback) };
}

/** A rule with its gain, if it looks at one; an order that is drawn has its seed. */
function cellName(c) {
  const several = cells.filter((other) => other.rule === c.rule && other.gain === c.gain).length > 1;
  return [c.rule, c.gain && `by ${c.gain}`, several && `order ${c.seed}`].filter(Boolean).join(", ");
}

function isCertified(t) { return path.certified !== null && t >= path.certified; }

// The chart: made once, given other lines when the choice changes, and a cursor that follows the step.
async function makeChart() {
  const { BoxAnnotation, Label, Plotting, Range1d, Span } = window.Bokeh;
  const figure = Plotting.figure({
    sizing_mode: "stretch_width", height: 380, tools: [], toolbar_location: null, min_border_right: 20, outline_line_color: null,
    x_range: new Range1d({ start: -1, end: last + 1 }), y_range: new Range1d({ start: 0, end: 1 }),
    x_axis_label: "measurements taken", y_axis_label: "rank",
  });
  for (const axis of [figure.xaxis, figure.yaxis]) {
    axis.axis_label_text_font_style = "normal";
    axis.axis_label_text_color = axis.major_label_text_color = "#1a1a1a";
    axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px";
    axis.minor_tick_line_color = null;
  }
  figure.xgrid.grid_line_color = null;
  figure.add_layout(new BoxAnnotation({ top: 0.5, bottom: k + 0.5, fill_color: "#ececec", fill_alpha: 1, line_color: null, level: "underlay" }));
  const looks = [{ colour: "#d4d4d4", dash: [] }, ...Array.from({ length: k }, (_, i) => STYLES[i % STYLES.length])];
  const lines = looks.map(({ colour, dash }, i) => {
    const source = new window.Bokeh.ColumnDataSource({ data: { x: [], y: [] } });
    const look = { mode: "after", line_color: colour, line_dash: dash, line_width: i ? 2 : 1 };
    figure.step({ x: { field: "x" }, y: { field: "y" }, source, ...look });
    return source;
  });
  const marks = [["settled", [2, 3]], ["certified", [8, 4]]].map(([text, dash], i) => {
    const line = new Span({ location: 0, dimension: "height", line_color: "#555555", line_dash: dash });
    const label = new Label({ x: 0, y: 0, y_offset: -14 * i, text, text_font_size: "12px", text_color: "#1a1a1a", text_baseline: "top" });
    figure.add_layout(line);
    figure.add_layout(label);
    return { line, label };
  });
  const cursor = new Span({ location: 0, dimension: "height", line_color: "#1a1a1a", line_width: 2 });
  figure.add_layout(cursor);
  figure.on_event("tap", (event) => { if (Number.isFinite(event.x)) show(Math.round(event.x)); });
  chart = { figure, cursor, marks, lines };
  await Plotting.show(figure, $("ranks"));
  passOver($("ranks"));
}

/** A chart tells what it shows in its label: what the library draws inside is no stop of the Tab key. */
function passOver(root) {
  for (const node of root.querySelectorAll("*")) {
    if (node.tabIndex >= 0) node.tabIndex = -1;
    if (node.shadowRoot) passOver(node.shadowRoot);
  }
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
  const [others, ...lines] = chart.lines;
  others.data = context;
  top.forEach((v, i) => { lines[i].data = { x: [...path.rank.keys()], y: byTime(v) }; });
  $("ranks-title").textContent = `Rank by ${scores[state.score]}, step by step`;
  $("ranks-note").textContent = `Entities in the top ${k} at full observation have the lines of the ranking; other entities are light grey. The top ${k} is shaded.`;
  const every = lowest > 12 ? 5 : 1;
  const ticks = path.order[0].map((_, i) => i + 1).filter((rank) => rank <= lowest && (rank === 1 || rank % every === 0));
  chart.figure.yaxis.ticker = new window.Bokeh.FixedTicker({ ticks });
  Object.assign(chart.figure.x_range, { end: last + 1 });
  Object.assign(chart.figure.y_range, { start: lowest + 0.5, end: -0.09 * lowest });
  const [settled, certified] = chart.marks;
  for (const [mark, t] of [[settled, path.settled], [certified, path.certified]]) {
    const before = t > 0.8 * last;
    mark.line.visible = mark.label.visible = t !== null;
    mark.line.location = t ?? 0;
    Object.assign(mark.label, { x: t ?? 0, y: -0.08 * lowest, text_align: before ? "right" : "left", x_offset: before ? -4 : 4 });
  }
  $("ranks").setAttribute("aria-label", `Ranks by ${scores[state.score]} against measurements taken. On top at full observation: `
    + `${top.map((v) => entities[v]).join(", ")}. The set is settled from step ${path.settled}.`);
}
