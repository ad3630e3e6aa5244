// The room of runs: a list, the curves and settings of the selected runs, and the tables of the paper.

import { fetchJson } from "/static/request.js";
import { element, fillSelect } from "/static/element.js";
import { clearErrors, showNotice } from "/static/notice.js";
import { readColours } from "/static/palette.js";
import { Chart } from "./chart.js";
import { paperTable, settingsTable } from "./tables.js";

const INTERVAL = 2000; // milliseconds between updates of the list
const MAX_SELECTED = 8;
const section = document.querySelector("#room-runs");
const find = (selector) => section.querySelector(selector);
const selected = new Map(); // name -> index of its colour
const details = new Map();
let colours = readColours();
let runs = [];
let paperTables = [];
let version = "";
let timer = null;
let isListening = false;
let isOffline = false; // the last update failed
const chart = new Chart(find("#runs-chart"), () => colours);

async function update() {
  try {
    const list = await fetchJson("/api/runs/list", { background: true });
    if (isOffline) clearErrors();
    isOffline = false;
    find("#runs-folder").textContent = list.folder;
    if (list.version === version) return;
    const isFirst = version === "";
    ({ runs, version } = list);
    if (isFirst) selectSome();
    showList();
    await loadDetails();
    loadTables();
  } catch (error) {
    if (!isOffline) showNotice(error.message);
    isOffline = true;
  }
}

// The comparison that the paper begins with, in the committed records.
const FIRST_COMPARISON = ["clustering-set-transformer", "clustering-ae32-pb", "clustering-ae32-pb-sa", "clustering-ours"]
  .map((name) => `${name}-quick-seed0`);

// Initial selection: runs in progress, or else the first comparison of the paper, or else runs of the task with most runs.
function selectSome() {
  const readable = runs.filter((run) => !run.problem);
  const training = readable.filter((run) => !run.finished);
  const first = readable.filter((run) => FIRST_COMPARISON.includes(run.name));
  const count = (kind) => readable.filter((run) => run.kind === kind).length;
  const finished = readable.filter((run) => run.score !== null && !run.name.includes("ablation"))
    .sort((a, b) => count(b.kind) - count(a.kind));
  const groups = [training, first.length > 1 ? first : [], finished];
  for (const run of (groups.find((group) => group.length) ?? []).slice(0, 4)) select(run.name);
}

function select(name) {
  const taken = new Set(selected.values());
  selected.set(name, Array.from({ length: MAX_SELECTED }, (_, index) => index).find((index) => !taken.has(index)));
}

function showList() {
  const filter = find("#runs-filter").value.toLowerCase();
  const shown = runs.filter((run) => run.name.toLowerCase().includes(filter));
  const focused = document.activeElement?.closest?.("#runs-list label")?.dataset.run;
  find("#runs-list").replaceChildren(...shown.map(listItem));
  if (focused) find(`#runs-list label[data-run="${CSS.escape(focused)}"] input`)?.focus();
  section.classList.toggle("without-runs", !runs.length);
  const unreadable = runs.filter((run) => run.problem).length;
  const count = shown.length ? `${shown.length} of ${runs.length} runs` : "No run matches";
  find("#runs-count").textContent = runs.length
    ? `${count}${unreadable ? `, ${unreadable} cannot be read` : ""}`
    : "No runs yet; train one with: picaset train clustering-ours --profile smoke";
}

function listItem(run) {
  const box = element("input", { type: "checkbox", checked: selected.has(run.name), disabled: Boolean(run.problem) });
  box.addEventListener("change", () => toggle(run.name, box));
  const swatch = element("span", { className: "swatch" });
  if (selected.has(run.name)) swatch.style.background = colours.components[selected.get(run.name)];
  return element("li", {}, element("label", { className: run.problem ? "broken" : "", data: { run: run.name } },
    box, swatch, element("span", { className: "name" }, run.name), element("span", { className: "state" }, describeState(run))));
}

function describeState(run) {
  if (run.problem) return `⚠ cannot be read: ${run.problem}`;
  const score = run.score === null ? "" : `, score ${run.score.toPrecision(4)}`;
  return run.finished ? `finished, ${run.steps} steps${score}` : `in progress or stopped at step ${run.step} of ${run.steps}${score}`;
}

function toggle(name, box) {
  if (box.checked && selected.size >= MAX_SELECTED) {
    box.checked = false;
    showNotice(`At most ${MAX_SELECTED} runs can be compared; deselect one first.`, { sticky: true });
    return;
  }
  if (box.checked) select(name);
  else selected.delete(name);
  showList();
  loadDetails();
}

async function loadDetails() {
  const versions = new Map(runs.map((run) => [run.name, run.version]));
  await Promise.all([...selected.keys()].map(async (name) => {
    if (details.get(name)?.version === versions.get(name)) return;
    try {
      details.set(name, await fetchJson(`/api/runs/run/${encodeURIComponent(name)}`));
    } catch (error) {
      selected.delete(name);
      details.delete(name);
      showNotice(error.message);
    }
  }));
  draw();
}

function draw() {
  const shown = [...selected.keys()].map((name) => details.get(name)).filter(Boolean);
  const metrics = [...new Set(shown.flatMap((detail) => Object.keys(detail.curves)))].filter((name) => name !== "step");
  const menu = find("#runs-measure");
  const metric = metrics.includes(menu.value) ? menu.value : metrics.includes("score") ? "score" : metrics[0];
  menu.replaceChildren(...metrics.map((name) => new Option(name.replaceAll("_", " "), name, false, name === metric)));
  const curves = shown.filter((detail) => detail.curves[metric]).map((detail) => ({
    name: detail.name,
    colour: colours.components[selected.get(detail.name)],
    steps: detail.curves.step,
    values: detail.curves[metric],
  }));
  chart.show(metric ?? "", curves);
  find("#runs-last").textContent = curves.length
    ? curves.map((curve) => `${curve.name}: ${curve.values.at(-1)?.toPrecision(4) ?? "–"} at step ${curve.steps.at(-1)}`).join(" · ")
    : "Select a run to see its curve.";
  find("#runs-settings").replaceChildren(
    shown.length ? settingsTable(shown, find("#runs-differing").checked) : element("p", {}, "Select runs to compare their settings."),
  );
}

async function loadTables() {
  try {
    const response = await fetchJson("/api/runs/tables");
    find("#runs-tables-about").textContent = response.about;
    paperTables = response.tables;
    const previous = find("#runs-table").value;
    fillSelect(find("#runs-table"), paperTables.map(({ title }) => ({ name: title, title })));
    if (paperTables.some(({ title }) => title === previous)) find("#runs-table").value = previous;
    showTable();
  } catch (error) {
    find("#runs-tables-about").textContent = error.message;
  }
}

function showTable() {
  const selectedTitle = find("#runs-table").value;
  find("#runs-tables").replaceChildren(...paperTables.filter(({ title }) => title === selectedTitle).map(paperTable));
}

function listen() {
  find("#runs-table").addEventListener("change", showTable);
  find("#runs-filter").addEventListener("input", showList);
  find("#runs-measure").addEventListener("change", draw);
  find("#runs-differing").addEventListener("change", draw);
  find("#runs-none").addEventListener("click", () => {
    selected.clear();
    showList();
    draw();
  });
  document.addEventListener("colours", () => {
    colours = readColours();
    showList();
    draw();
  });
}

export function enter() {
  if (!isListening) listen();
  isListening = true;
  clearInterval(timer);
  timer = setInterval(update, INTERVAL);
  update();
}

export function leave() {
  clearInterval(timer);
}
