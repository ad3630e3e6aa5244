// The cluster room: a board of points, a card for each method, the attention steps of a network.

import { fetchJson, LatestRequest } from "/static/request.js";
import { fillSelect, setText } from "/static/element.js";
import { clearErrors, showNotice } from "/static/notice.js";
import { readColours } from "/static/palette.js";
import { Board } from "./board.js";
import { Card, verdictOf } from "./cards.js";
import { Cascade } from "./cascade.js";
import { csvOf, download, svgOf } from "./export.js";
import { Matching } from "./matching.js";
import { MAX_POINTS, Move, Points } from "./points.js";
import { listenForTables } from "./tables.js";

const section = document.querySelector("#room-cluster");
const find = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
const points = new Points();
const matching = new Matching();
let colours = readColours();
let gesture = 0;
let seed = 258; // four well separated clusters, on which the effect of a shift is typical
let cards = [];
let restTimer = null;
let compareTimer = null;
let isMoving = false;

const INTERVAL = 300; // milliseconds between two requests to a method; the first is updated at every movement
const REST = 120; // milliseconds without a movement after which it has stopped
const OWN = { name: "own", title: "Your own points" };
const MEASURE = "picaset: gesture to result";

const value = (name) => Number(find(`#${name}`).value);
const move = () => new Move({ shift: value("shift"), scale: value("scale"), degrees: value("rotation") });

const board = new Board({
  canvas: find("#board"),
  points,
  move,
  tool: () => find("#tools input:checked").value,
  colours: () => colours,
  changed,
  report: (message) => { find("#board-state").textContent = message; },
  full: () => showNotice(`The page accepts at most ${MAX_POINTS.toLocaleString("en")} points.`, { sticky: true }),
});
const cascade = new Cascade(section, { colours: () => colours, matching });

// The points have changed: requests the results of all methods.
function changed(event) {
  gesture += 1;
  const moved = board.moved();
  const json = `[${moved.map(([x, y]) => `[${Number(x.toPrecision(12))},${Number(y.toPrecision(12))}]`).join(",")}]`;
  const number = gesture;
  const query = {
    gesture: number,
    points: moved,
    began: event?.timeStamp ?? performance.now(),
    body: (method, rest = "") => `{"method":"${method}","gesture":${number},"page":"${page}"${rest},"points":${json}}`,
  };
  setText(find("#board-state"), `${points.all.length} points`);
  find("#undo").disabled = !points.past.length;
  find("#redo").disabled = !points.future.length;
  if (moved.length < 2) {
    clearTimeout(restTimer);
    clearTimeout(compareTimer);
    compareTimer = null;
    for (const card of cards) {
      card.latest.cancel();
      card.fail("Add at least two points.");
    }
    cascade.cancel("Add at least two points.");
    find("#verdict").textContent = "Add at least two points: click on the board, or choose an example.";
    return;
  }
  isMoving = true;
  clearTimeout(restTimer);
  restTimer = setTimeout(onRest, REST);
  if (cards.every((card) => card.result === null)) setText(find("#verdict"), "Waiting for the results …");
  for (const card of cards) {
    if (card.problem) card.wait();
    card.latest.submit(query);
  }
  cascade.submit(query);
}

// The movement has stopped: sends the requests that are paused.
function onRest() {
  isMoving = false;
  for (const { latest } of [...cards, cascade]) latest.resume();
  scheduleComparison();
}

function makeCard(method, index) {
  const isLive = index === 0;
  const card = new Card(method, { colours: () => colours, matching });
  card.latest = new LatestRequest({
    pause: isLive ? 0 : INTERVAL,
    send: (query, request) => fetchJson("/api/cluster/fit", {
      body: query.body(method.name, `,"components":${value("components")},"covariance":"${find("#covariance").value}","noise":${find("#noise").checked}`),
      ...request,
    }),
    show: (result, query) => {
      card.show(result, query.points);
      if (isLive) measure(query);
      scheduleComparison();
    },
    fail: (error) => {
      card.fail(error.message);
      scheduleComparison();
    },
  });
  return card;
}

// Measures the time from an action to the end of the frame that shows its result, for the benchmark.
function measure({ began }) {
  requestAnimationFrame(() => setTimeout(() => {
    performance.measure(MEASURE, { start: began, end: performance.now() });
    if (performance.getEntriesByName(MEASURE).length > 2000) performance.clearMeasures(MEASURE);
  }));
}

// Results arrive one by one; they are compared together, a few times a second.
function scheduleComparison() {
  compareTimer ??= setTimeout(compare, 150);
}

function compare() {
  compareTimer = null;
  const fitted = cards.filter((card) => card.result !== null);
  if (!fitted.length) {
    const problems = new Set(cards.map((card) => card.problem).filter(Boolean));
    if (problems.size) setText(find("#verdict"), `No results: ${[...problems].join(" ")}`);
    return;
  }
  const best = fitted.reduce((a, b) => (b.result.log_likelihood > a.result.log_likelihood ? b : a));
  matching.anchor(best.result.components);
  const references = fitted.map((card) => card.result.reference ?? -Infinity);
  // Without the free fit of the data, the best of the methods shown would count as good; its method may still compute.
  if (Math.max(...references) === -Infinity && cards.some((card) => card.result === null && !card.problem)) return;
  const highest = Math.max(best.result.log_likelihood, ...references);
  for (const card of cards) {
    card.compare(highest);
    card.recolour();
    if (!isMoving) card.element.classList.toggle("stale", card.result !== null && card.result.gesture < gesture);
  }
  if (!isMoving) cascade.draw(); // with the colours of the best method
  setText(find("#verdict"), verdictOf(cards, value("shift")));
}

function showSliderValues() {
  find("#shift-shown").textContent = formatSigned(value("shift"));
  find("#scale-shown").textContent = `× ${value("scale")}`;
  find("#rotation-shown").textContent = `${value("rotation")}°`;
  find("#components-shown").textContent = value("components");
}

function formatSigned(number) {
  return number > 0 ? `+${number}` : String(number).replace("-", "−");
}

function setPoints(positions, from, { framesTable = false } = {}) {
  clearErrors();
  board.framesTable = framesTable;
  points.replace(positions, from);
  find("#example").value = from;
  board.draw();
  changed();
}

function resetSliders() {
  Object.assign(find("#shift"), { value: 0 });
  Object.assign(find("#scale"), { value: 1 });
  Object.assign(find("#rotation"), { value: 0 });
  Object.assign(find("#components"), { value: 4 });
  showSliderValues();
}

async function loadExample() {
  const list = find("#example");
  if (list.value === OWN.name) list.selectedIndex = 0;
  const name = list.value;
  try {
    const example = await fetchJson(`/api/cluster/examples/${name}?seed=${seed}&components=${value("components")}`);
    setPoints(example.points, name);
  } catch (error) {
    list.value = points.from;
    showNotice(error.message);
  }
}

// Moves the slider gradually, so that the effect can be watched.
function shiftPoints() {
  const slider = find("#shift");
  const goal = 12;
  const atOnce = matchMedia("(prefers-reduced-motion: reduce)").matches;
  clearInterval(shiftPoints.timer);
  shiftPoints.timer = setInterval(() => {
    slider.value = atOnce ? goal : Math.min(goal, Number(slider.value) + 0.5);
    showSliderValues();
    board.draw();
    changed();
    if (Number(slider.value) >= goal) clearInterval(shiftPoints.timer);
  }, 60);
}

function listen() {
  for (const name of ["shift", "scale", "rotation", "components"]) {
    find(`#${name}`).addEventListener("input", (event) => {
      clearInterval(shiftPoints.timer);
      showSliderValues();
      board.draw();
      changed(event);
    });
  }
  for (const name of ["covariance", "noise"]) find(`#${name}`).addEventListener("change", (event) => changed(event));
  find("#push").addEventListener("click", shiftPoints);
  find("#back").addEventListener("click", () => {
    clearInterval(shiftPoints.timer);
    resetSliders();
    board.draw();
    changed();
  });
  find("#undo").addEventListener("click", () => changeHistory("undo"));
  find("#redo").addEventListener("click", () => changeHistory("redo"));
  find("#clear").addEventListener("click", () => setPoints([], OWN.name));
  find("#example").addEventListener("change", loadExample);
  find("#again").addEventListener("click", () => {
    seed += 1;
    loadExample();
  });
  listenForTables(section, ({ points: positions, about }) => {
    resetSliders();
    setPoints(positions, OWN.name, { framesTable: true });
    showNotice(about, { isError: false });
  });
  find("#download-csv").addEventListener("click", () => {
    const card = cards.find(({ method }) => method.name === find("#download-method").value);
    if (card?.result) download("clusters.csv", csvOf(card.points, card.result.labels), "text/csv");
    else showNotice("There is no result to download yet.");
  });
  find("#download-svg").addEventListener("click", () => {
    const shown = cards.filter((card) => card.result).map((card) => ({
      method: card.method, result: card.result, points: card.points, order: matching.colours(card.result.components),
    }));
    if (shown.length) download("clusters.svg", svgOf(shown, colours, find("#verdict").textContent), "image/svg+xml");
    else showNotice("There is no result to download yet.");
  });
  section.addEventListener("keydown", shortcut);
  document.addEventListener("colours", () => {
    colours = readColours();
    board.draw();
    cascade.draw();
    for (const card of cards) card.draw();
  });
}

function changeHistory(action) {
  if (!points[action]()) return;
  find("#example").value = points.from;
  board.draw();
  changed();
}

function shortcut(event) {
  if (event.target.matches("textarea, select, input[type=text]")) return;
  const key = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && (key === "z" || key === "y")) {
    changeHistory(key === "y" || event.shiftKey ? "redo" : "undo");
    event.preventDefault();
    return;
  }
  const tool = { a: "add", m: "move", s: "spray", e: "erase" }[key];
  if (tool && !event.ctrlKey && !event.metaKey && !event.altKey) {
    find(`#tools input[value=${tool}]`).checked = true;
    find("#board-state").textContent = `Tool: ${tool}`;
  }
}

async function start() {
  listen();
  showSliderValues();
  try {
    const [methods, examples] = await Promise.all([fetchJson("/api/cluster/methods"), fetchJson("/api/cluster/examples")]);
    cards = methods.map(makeCard);
    find("#cards").append(...cards.map((card) => card.element));
    fillSelect(find("#example"), [...examples, OWN]);
    find(`#example [value=${OWN.name}]`).disabled = true; // shown after an edit; there is nothing to load
    fillSelect(find("#download-method"), methods);
    if (methods.some(({ name }) => name === "picaso-canonical")) find("#download-method").value = "picaso-canonical";
    cascade.listMethods(methods);
    await loadExample();
    points.past = [];
    find("#undo").disabled = true;
  } catch (error) {
    showNotice(error.message);
  }
}

start();

export function leave() {
  cascade.stop();
  clearInterval(shiftPoints.timer);
}
