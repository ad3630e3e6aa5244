// The room: a list of runs, the curves of those that are chosen, their settings, and the tables of the paper.

import { ask } from "/static/ask.js";
import { offer } from "/static/element.js";
import { settle, tell } from "/static/notice.js";
import { colours as readColours } from "/static/palette.js";
import { Chart } from "./chart.js";
import { made, paperTable, settingsTable } from "./tables.js";

const EVERY = 2000; // milliseconds between looks at the folder
const MOST_CHOSEN = 8;
const section = document.querySelector("#room-runs");
const part = (selector) => section.querySelector(selector);
const chosen = new Map(); // name -> number of its colour
const details = new Map();
let colours = readColours();
let runs = [];
let papers = []; // tables
let seen = "";
let timer = null;
let begun = false;
let isGone = false; // the studio did not answer the last look
const chart = new Chart(part("#runs-chart"), () => colours);

async function look() {
  try {
    const found = await ask("/api/runs/list", { aside: true });
    if (isGone) settle();
    isGone = false;
    part("#runs-folder").textContent = found.folder;
    if (found.version === seen) return;
    const first = seen === "";
    seen = found.version;
    ({ runs } = found);
    if (first) chooseSome();
    list();
    await refresh();
    tables();
  } catch (error) {
    if (!isGone) tell(error.message);
    isGone = true;
  }
}

// Something to look at: what trains now, or else a few of the task that has most runs.
function chooseSome() {
  const whole = runs.filter((run) => !run.problem);
  const training = whole.filter((run) => !run.finished);
  const count = (kind) => whole.filter((run) => run.kind === kind).length;
  const finished = whole.filter((run) => run.score !== null && !run.name.includes("ablation"))
    .sort((one, other) => count(other.kind) - count(one.kind));
  for (const run of (training.length ? training : finished).slice(0, 4)) choose(run.name);
}

function choose(name) {
  const taken = new Set(chosen.values());
  chosen.set(name, Array.from({ length: MOST_CHOSEN }, (_, index) => index).find((index) => !taken.has(index)));
}

function list() {
  const wanted = part("#runs-filter").value.toLowerCase();
  const shown = runs.filter((run) => run.name.toLowerCase().includes(wanted));
  const focused = document.activeElement?.closest?.("#runs-list label")?.dataset.run;
  part("#runs-list").replaceChildren(...shown.map(entry));
  if (focused) part(`#runs-list label[data-run="${CSS.escape(focused)}"] input`)?.focus();
  const broken = runs.filter((run) => run.problem).length;
  const which = shown.length ? `${shown.length} of ${runs.length} runs` : "No run has that in its name";
  part("#runs-count").textContent = runs.length
    ? `${which}${broken ? `, ${broken} cannot be read` : ""}`
    : "No runs here yet; make one with: picaset train clustering-ours --profile smoke";
}

function entry(run) {
  const item = made("li");
  const label = made("label");
  label.dataset.run = run.name;
  const box = Object.assign(document.createElement("input"), {
    type: "checkbox", checked: chosen.has(run.name), disabled: Boolean(run.problem),
  });
  box.addEventListener("change", () => toggle(run.name, box));
  const swatch = Object.assign(made("span"), { className: "swatch" });
  if (chosen.has(run.name)) swatch.style.background = colours.components[chosen.get(run.name)];
  const state = Object.assign(made("span", stateOf(run)), { className: "state" });
  label.append(box, swatch, Object.assign(made("span", run.name), { className: "name" }), state);
  if (run.problem) label.className = "broken";
  item.append(label);
  return item;
}

function stateOf(run) {
  if (run.problem) return `⚠ cannot be read: ${run.problem}`;
  const score = run.score === null ? "" : `, score ${run.score.toPrecision(4)}`;
  return run.finished ? `finished, ${run.steps} steps${score}` : `training or stopped at step ${run.step} of ${run.steps}${score}`;
}

function toggle(name, box) {
  if (box.checked && chosen.size >= MOST_CHOSEN) {
    box.checked = false;
    tell(`At most ${MOST_CHOSEN} runs can be told apart; take one away first.`, { stays: true });
    return;
  }
  if (box.checked) choose(name);
  else chosen.delete(name);
  list();
  refresh();
}

async function refresh() {
  const versions = new Map(runs.map((run) => [run.name, run.version]));
  await Promise.all([...chosen.keys()].map(async (name) => {
    if (details.get(name)?.version === versions.get(name)) return;
    try {
      details.set(name, await ask(`/api/runs/run/${encodeURIComponent(name)}`));
    } catch (error) {
      chosen.delete(name);
      details.delete(name);
      tell(error.message);
    }
  }));
  draw();
}

function draw() {
  const shown = [...chosen.keys()].map((name) => details.get(name)).filter(Boolean);
  const measures = [...new Set(shown.flatMap((detail) => Object.keys(detail.curves)))].filter((name) => name !== "step");
  const select = part("#runs-measure");
  const wanted = measures.includes(select.value) ? select.value : measures.includes("score") ? "score" : measures[0];
  select.replaceChildren(...measures.map((name) => new Option(name.replaceAll("_", " "), name, false, name === wanted)));
  const curves = shown.filter((detail) => detail.curves[wanted]).map((detail) => ({
    name: detail.name,
    colour: colours.components[chosen.get(detail.name)],
    steps: detail.curves.step,
    values: detail.curves[wanted],
  }));
  chart.show(wanted ?? "", curves);
  part("#runs-last").textContent = curves.length
    ? curves.map((curve) => `${curve.name}: ${curve.values.at(-1)?.toPrecision(4) ?? "–"} at step ${curve.steps.at(-1)}`).join(" · ")
    : "Choose a run to see its curve.";
  part("#runs-settings").replaceChildren(
    shown.length ? settingsTable(shown, part("#runs-differing").checked) : made("p", "Choose runs to compare their settings."),
  );
}

async function tables() {
  try {
    const found = await ask("/api/runs/tables");
    part("#runs-tables-about").textContent = found.about;
    papers = found.tables;
    const kept = part("#runs-table").value;
    offer(part("#runs-table"), papers.map(({ title }) => ({ name: title, title })));
    if (papers.some(({ title }) => title === kept)) part("#runs-table").value = kept;
    showTable();
  } catch (error) {
    part("#runs-tables-about").textContent = error.message;
  }
}

function showTable() {
  const wanted = part("#runs-table").value;
  part("#runs-tables").replaceChildren(...papers.filter(({ title }) => title === wanted).map(paperTable));
}

function listen() {
  part("#runs-table").addEventListener("change", showTable);
  part("#runs-filter").addEventListener("input", list);
  part("#runs-measure").addEventListener("change", draw);
  part("#runs-differing").addEventListener("change", draw);
  part("#runs-none").addEventListener("click", () => {
    chosen.clear();
    list();
    draw();
  });
  document.addEventListener("colours", () => {
    colours = readColours();
    list();
    draw();
  });
}

export function enter() {
  if (!begun) listen();
  begun = true;
  clearInterval(timer);
  timer = setInterval(look, EVERY);
  look();
}

export function leave() {
  clearInterval(timer);
}
