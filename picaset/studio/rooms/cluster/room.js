// The room: points on a board, a card for each method, a cascade step by step.

import { ask, Newest } from "/static/ask.js";
import { offer, write } from "/static/element.js";
import { settle, tell } from "/static/notice.js";
import { colours as readColours } from "/static/palette.js";
import { Board } from "./board.js";
import { Card, verdictOf } from "./cards.js";
import { Cascade } from "./cascade.js";
import { csvOf, download, svgOf } from "./export.js";
import { Matching } from "./matching.js";
import { MOST, Move, Points } from "./points.js";
import { listenForTables } from "./tables.js";

const section = document.querySelector("#room-cluster");
const part = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
const points = new Points();
const matching = new Matching();
let colours = readColours();
let gesture = 0;
let seed = 258; // four clusters that are easy to see, and as hard to follow as they are on average
let cards = [];
let resting = null;
let judging = null;
let moving = false;

const FOLLOWS = "picaso"; // asked at every move of the hand; the others less often, and when it rests
const STRIDE = 300; // milliseconds between two questions to one of the others
const REST = 120; // milliseconds without a move
const OWN = { name: "own", title: "Your own points" };
const MEASURE = "picaset: gesture to result";

const value = (name) => Number(part(`#${name}`).value);
const move = () => new Move({ shift: value("shift"), scale: value("scale"), degrees: value("rotation") });

const board = new Board({
  canvas: part("#board"),
  points,
  move,
  tool: () => part("#tools input:checked").value,
  colours: () => colours,
  changed,
  told: (words) => { part("#board-state").textContent = words; },
  full: () => tell(`The page takes at most ${MOST.toLocaleString("en")} points.`, { stays: true }),
});
const cascade = new Cascade(section, { colours: () => colours, matching });

// Something moved: everyone is asked again.
function changed(event) {
  gesture += 1;
  const moved = board.moved();
  const written = `[${moved.map(([x, y]) => `[${x.toFixed(4)},${y.toFixed(4)}]`).join(",")}]`;
  const number = gesture;
  const question = {
    gesture: number,
    points: moved,
    began: event?.timeStamp ?? performance.now(),
    body: (method, rest = "") => `{"method":"${method}","gesture":${number},"page":"${page}"${rest},"points":${written}}`,
  };
  write(part("#board-state"), `${points.all.length} points`);
  part("#undo").disabled = !points.past.length;
  part("#redo").disabled = !points.future.length;
  if (moved.length < 2) {
    clearTimeout(resting);
    clearTimeout(judging);
    judging = null;
    for (const card of cards) {
      card.newest.forget();
      card.fail("Add at least two points.");
    }
    cascade.forget("Add at least two points.");
    part("#verdict").textContent = "Add at least two points: click on the board, or choose an example.";
    return;
  }
  moving = true;
  clearTimeout(resting);
  resting = setTimeout(rest, REST);
  for (const card of cards) card.newest.want(question);
  cascade.want(question);
}

// The hand holds still: whoever paused is asked at once.
function rest() {
  moving = false;
  for (const { newest } of [...cards, cascade]) newest.hurry();
  compare();
}

function makeCard(method) {
  const card = new Card(method, { colours: () => colours, matching });
  card.newest = new Newest({
    pause: method.name === FOLLOWS ? 0 : STRIDE,
    send: (question, signal) => ask("/api/cluster/fit", {
      body: question.body(method.name, `,"components":${value("components")}`), signal,
    }),
    show: (result, question) => {
      card.show(result, question.points);
      if (method.name === FOLLOWS) timed(question);
      compare();
    },
    fail: (error) => {
      card.fail(error.message);
      compare();
    },
  });
  return card;
}

// From the gesture to the end of the frame that shows its result, for the benchmark.
function timed({ began }) {
  requestAnimationFrame(() => setTimeout(() => {
    performance.measure(MEASURE, { start: began, end: performance.now() });
    if (performance.getEntriesByName(MEASURE).length > 2000) performance.clearMeasures(MEASURE);
  }));
}

// Results come one by one; they are judged together, a few times a second.
function compare() {
  judging ??= setTimeout(judge, 150);
}

function judge() {
  judging = null;
  const found = cards.filter((card) => card.result !== null);
  if (!found.length) {
    const problems = new Set(cards.map((card) => card.problem).filter(Boolean));
    if (problems.size) write(part("#verdict"), `There is no result: ${[...problems].join(" ")}`);
    return;
  }
  const best = found.reduce((one, other) => (other.result.log_likelihood > one.result.log_likelihood ? other : one));
  matching.anchor(best.result.components);
  for (const card of cards) {
    card.judge(best.result.log_likelihood);
    card.recolour();
    if (!moving) card.element.classList.toggle("stale", card.result !== null && card.result.gesture < gesture);
  }
  if (!moving) cascade.draw(); // in the colours of the best
  write(part("#verdict"), verdictOf(cards, value("shift")));
}

function slide() {
  part("#shift-shown").textContent = signed(value("shift"));
  part("#scale-shown").textContent = `× ${value("scale")}`;
  part("#rotation-shown").textContent = `${value("rotation")}°`;
  part("#components-shown").textContent = value("components");
}

function signed(number) {
  return number > 0 ? `+${number}` : String(number).replace("-", "−");
}

function setAll(places, from) {
  settle();
  points.replace(places, from);
  part("#example").value = from;
  board.draw();
  changed();
}

function putBack() {
  Object.assign(part("#shift"), { value: 0 });
  Object.assign(part("#scale"), { value: 1 });
  Object.assign(part("#rotation"), { value: 0 });
  Object.assign(part("#components"), { value: 4 });
  slide();
}

async function takeExample() {
  const list = part("#example");
  if (list.value === OWN.name) list.selectedIndex = 0;
  const name = list.value;
  try {
    const found = await ask(`/api/cluster/examples/${name}?seed=${seed}&components=${value("components")}`);
    setAll(found.points, name);
  } catch (error) {
    list.value = points.from;
    tell(error.message);
  }
}

// Sliding the shift there, so that one sees it happen.
function push() {
  const slider = part("#shift");
  const goal = 12;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  clearInterval(push.timer);
  push.timer = setInterval(() => {
    slider.value = still ? goal : Math.min(goal, Number(slider.value) + 0.5);
    slide();
    board.draw();
    changed();
    if (Number(slider.value) >= goal) clearInterval(push.timer);
  }, 60);
}

function listen() {
  for (const name of ["shift", "scale", "rotation", "components"]) {
    part(`#${name}`).addEventListener("input", (event) => {
      clearInterval(push.timer);
      slide();
      board.draw();
      changed(event);
    });
  }
  part("#push").addEventListener("click", push);
  part("#back").addEventListener("click", () => {
    clearInterval(push.timer);
    putBack();
    board.draw();
    changed();
  });
  part("#undo").addEventListener("click", () => travel("undo"));
  part("#redo").addEventListener("click", () => travel("redo"));
  part("#clear").addEventListener("click", () => setAll([], OWN.name));
  part("#example").addEventListener("change", takeExample);
  part("#again").addEventListener("click", () => {
    seed += 1;
    takeExample();
  });
  listenForTables(section, ({ points: found, about }) => {
    putBack();
    setAll(found, OWN.name);
    tell(about, { wrong: false });
  });
  part("#download-csv").addEventListener("click", () => {
    const card = cards.find((one) => one.method.name === part("#download-method").value);
    if (card?.result) download("clusters.csv", csvOf(card.points, card.result.labels), "text/csv");
    else tell("There is no result yet to download.");
  });
  part("#download-svg").addEventListener("click", () => {
    const shown = cards.filter((card) => card.result).map((card) => ({
      method: card.method, result: card.result, points: card.points, order: matching.colours(card.result.components),
    }));
    if (shown.length) download("clusters.svg", svgOf(shown, colours, part("#verdict").textContent), "image/svg+xml");
    else tell("There is no result yet to download.");
  });
  section.addEventListener("keydown", shortcut);
  document.addEventListener("colours", () => {
    colours = readColours();
    board.draw();
    cascade.draw();
    for (const card of cards) card.draw();
  });
}

function travel(way) {
  if (!points[way]()) return;
  part("#example").value = points.from;
  board.draw();
  changed();
}

function shortcut(event) {
  if (event.target.matches("textarea, select, input[type=text]")) return;
  const key = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && (key === "z" || key === "y")) {
    travel(key === "y" || event.shiftKey ? "redo" : "undo");
    event.preventDefault();
    return;
  }
  const tool = { a: "add", m: "move", s: "spray", e: "erase" }[key];
  if (tool && !event.ctrlKey && !event.metaKey && !event.altKey) {
    part(`#tools input[value=${tool}]`).checked = true;
    part("#board-state").textContent = `Tool: ${tool}`;
  }
}

async function begin() {
  listen();
  slide();
  try {
    const [methods, examples] = await Promise.all([ask("/api/cluster/methods"), ask("/api/cluster/examples")]);
    cards = methods.map(makeCard);
    part("#cards").append(...cards.map((card) => card.element));
    offer(part("#example"), [...examples, OWN]);
    part(`#example [value=${OWN.name}]`).disabled = true; // it is so when they are; there is nothing to fetch
    offer(part("#download-method"), methods);
    part("#download-method").value = "picaso-canonical";
    await takeExample();
    points.past = [];
    part("#undo").disabled = true;
  } catch (error) {
    tell(error.message);
  }
}

begin();

export function leave() {
  cascade.stop();
  clearInterval(push.timer);
}
