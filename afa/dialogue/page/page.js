"use strict";
// Shows what the server says and sends what is clicked; nothing of the planner is computed here.
const token = new URLSearchParams(location.search).get("token") || "";
const at = (id) => document.getElementById(id);
const NAMES = { "-1": "low", 0: "as usual", 1: "high" };
const SHOWN = 12;
let greeting = null, state = null, chosen = {}, typed = {}, busy = false;

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
    const error = answer.ok ? null : answer.error;
    tell(error ? `${error.where}: ${error.found}; expected ${error.expected}. Next step: ${error.next_step}.` : "");
    show(now);
    return answer.ok;
  } catch (error) {
    lost(error);
  } finally {
    busy = false;
    document.body.dataset.busy = "false";
  }
}

function lost(error) {
  const kept = state && state.kept ? ` Every step is kept in ${state.kept}: the same command takes it up again.` : "";
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

const signed = (value) => (value > 0 ? `+${value}` : `${value}`);

function meaning(feature, value) {
  const scale = greeting.scales[feature];
  if (!scale) return NAMES[value];
  if (scale.kind === "binary") return value ? "yes" : "no";
  const unit = scale.unit ? ` ${scale.unit}` : "";
  if (value < 0 && scale.low !== null) return `below ${scale.low}${unit}`;
  if (value > 0 && scale.high !== null) return `above ${scale.high}${unit}`;
  if (value === 0 && scale.low !== null && scale.high !== null) return `${scale.low} to ${scale.high}${unit}`;
  return NAMES[value];
}

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

function take() {
  const values = {}, numbers = {};
  for (const feature of state.suggestion.features) {
    if (isTyped(feature)) numbers[feature] = Number(typed[feature].trim().replace(",", "."));
    else if (feature in chosen) values[feature] = chosen[feature];
    if (feature in numbers && !Number.isFinite(numbers[feature])) return tell(`${feature}: '${typed[feature]}' is no number. Write for example 12.5.`);
  }
  if (nothing()) return tell("Write a number, for example 12.5.");
  const some = (name, given) => (Object.keys(given).length ? { [name]: given } : {});
  say({ do: "observe", ...some("values", values), ...some("numbers", numbers) });
}

function row(feature) {
  const scale = greeting.scales[feature], parts = [], several = state.suggestion.features.length > 1;
  if (scale && scale.kind !== "binary" && (scale.low !== null || scale.high !== null)) {
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
    const button = make("button", [make("strong", `${signed(value)}: ${meaning(feature, value)}${has}`), words && make("small", words)], { type: "button" });
    button.dataset.value = value;
    button.setAttribute("aria-pressed", String(chosen[feature] === value));
    button.addEventListener("click", () => choose(feature, value));
    return button;
  });
  parts.push(make("div", buttons, { className: "choice" }));
  return make("fieldset", [make("legend", several ? feature : ""), ...parts]);
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
  const item = state.suggestion, answer = state.answer, view = state.view;
  at("next-label").textContent = item ? "Measure next" : "Done";
  at("asked").textContent = item ? item.name + (view.priced ? ` (cost ${item.cost})` : "") : answer.words;
  const scale = item && greeting.scales[item.features[0]];
  at("definition").textContent = (item && item.features.length === 1 && scale && scale.definition) || "";
  at("reason").textContent = item ? item.reason : state.stopped;
  at("skip").disabled = !item;
  at("undo").disabled = !view.history.length;
  rows();
  at("others").replaceChildren();
  if (view.runners_up.length) at("others").append("Next best: ", view.runners_up.join(", "), ".");
  at("words").textContent = answer.words;
  at("spent").textContent = `${state.observed} measured${view.priced ? `, spent ${state.spent}` : ""}`;
  bars(view, answer);
  values(view);
  at("kept").textContent = state.kept ? `Kept in ${state.kept} after every step.` : "";
  at("keep").hidden = Boolean(state.kept);
  at("features").replaceChildren(...view.open.map((name) => make("option", [], { value: name })));
  document.body.dataset.step = state.step;
  document.body.dataset.ready = "true";
}

function bars(view, answer) {
  at("of").textContent = view.of;
  const inside = new Set(answer.top_k || []);
  const order = Object.entries(view.posterior).sort((one, other) => other[1] - one[1]).slice(0, SHOWN);
  const body = at("bars").tBodies[0];
  const known = new Map([...body.rows].map((line) => [line.dataset.entity, line]));
  const lines = order.map(([name, share]) => {
    const line = known.get(name) || make("tr", [make("th", name, { scope: "row" }), make("td", make("span", [], { className: "bar" })), make("td", "")]);
    line.dataset.entity = name;
    line.className = inside.has(name) && state.observed && !answer.undecided.length ? "inside" : "";
    line.querySelector(".bar").style.width = `${Math.max(100 * share, 0.5)}%`;
    line.cells[2].textContent = share.toFixed(2);
    return line;
  });
  body.replaceChildren(...lines);
}

function values(view) {
  const reasons = {};
  for (const step of view.history) reasons[step.feature] = step.reason;
  const lines = Object.entries(view.values).map(([feature, value]) => {
    const select = make("select", possible(feature).map((one) => make("option", `${signed(one)}: ${meaning(feature, one)}`, { value: one, selected: one === value })));
    select.setAttribute("aria-label", `correct ${feature}`);
    select.addEventListener("change", () => say({ do: "correct", feature, value: Number(select.value) }));
    return make("tr", [make("th", feature, { scope: "row" }), make("td", select), make("td", reasons[feature])]);
  });
  for (const feature of view.skipped) lines.push(make("tr", [make("th", feature, { scope: "row" }), make("td", "skipped"), make("td", "cannot be measured")]));
  at("values").tBodies[0].replaceChildren(...lines);
  at("values").hidden = !lines.length;
  at("nothing").hidden = Boolean(lines.length);
}

const skip = () => state.suggestion && say({ do: "skip", feature: state.suggestion.name });
const undo = () => state.view.history.length && say({ do: "undo" });
at("skip").addEventListener("click", skip);
at("undo").addEventListener("click", undo);
at("print").addEventListener("click", () => print());
at("known").addEventListener("submit", async (event) => {
  event.preventDefault();
  const ok = await say({ do: "observe", values: { [at("feature").value.trim()]: Number(at("value").value) } });
  if (ok) at("feature").value = "";
});
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
  document.title = at("title").textContent = `${name} ${version}`;
  at("question").textContent = greeting.question;
  show(start.state);
  follow();
}, lost);
