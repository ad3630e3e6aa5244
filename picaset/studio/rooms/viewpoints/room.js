// The room: a toy on a turntable, a card for each network, and where each looks.

import { ask, Newest, pictureOf } from "/static/ask.js";
import { element, listed, write } from "/static/element.js";
import { tell } from "/static/notice.js";
import { colours } from "/static/palette.js";
import { Card } from "./cards.js";
import { Dial } from "./dial.js";
import { drawHeat, headOf } from "./heat.js";

const section = document.querySelector("#room-viewpoints");
const part = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
const CATEGORIES = ["animal", "human", "airplane", "truck", "car"];
const TURN = 18; // pictures of a whole turn
let known = null;
let dial = null;
let cards = [];
let film = [];
let chosen = { step: 0, head: 0 };
let gesture = 0;
let picture = null;
let left = 0; // pictures of the turn that are still to come

const value = (name) => part(`#view-${name}`).value;
const view = () => ({
  source: value("source"), category: value("category"), instance: Number(value("instance")),
  elevation: Number(value("elevation")), azimuth: dial.value, lighting: Number(value("lighting")),
});

// One picture at a time, always the newest next.
const pictures = new Newest({
  send: (shown) => pictureOf(`/api/viewpoints/picture?${new URLSearchParams(shown)}`),
  show: (image) => {
    picture = image;
    draw();
  },
  fail: (error) => tell(error.message),
});

function degreesAway(azimuth) {
  return Math.min(...known.training_azimuths.map((one) => Math.min((azimuth - one + 36) % 36, (one - azimuth + 36) % 36))) * 10;
}

const source = () => known.sources.find((one) => one.name === value("source"));

function describe(azimuth) {
  const away = degreesAway(azimuth);
  return `${azimuth * 10} degrees, ${away ? `novel, ${away} degrees from the nearest of training` : "as in training"}`;
}

// Something turned: everyone is asked again.
function changed() {
  gesture += 1;
  const shown = view();
  const away = degreesAway(shown.azimuth);
  const isNew = source().trained_instances.includes(shown.instance) ? "a toy of training" : "a toy that training never had";
  write(part("#view-elevation-shown"), `${30 + 5 * shown.elevation}°`);
  write(part("#view-lighting-shown"), `${shown.lighting + 1} of 6`);
  write(part("#view-place"), `Azimuth ${shown.azimuth * 10}°: ${away ? `novel, ${away}° from training` : "as in training"}; ${isNew}.`);
  part("#view-picture").setAttribute("aria-label", `The toy, ${shown.category} ${shown.instance + 1}, azimuth ${shown.azimuth * 10} degrees`);
  pictures.want(shown);
  for (const card of cards) card.newest.want({ gesture, view: shown });
}

function another() {
  stop();
  for (const card of cards) card.forget();
  changed();
}

function makeCard(model) {
  const card = new Card(model, CATEGORIES, known.training_azimuths);
  card.newest = new Newest({
    send: (question, signal) => ask("/api/viewpoints/seen", {
      body: JSON.stringify({ model: model.name, view: question.view, page, gesture: question.gesture }), signal,
    }),
    show: (result, question) => {
      const now = view();
      const same = ["source", "category", "instance", "elevation", "lighting"].every((name) => now[name] === question.view[name]);
      if (!same) return;
      card.show(result, question.view);
      if (model.name === looker()) draw();
      judge();
    },
    fail: (error) => {
      card.fail(error.message);
      stop();
    },
  });
  return card;
}

// Once all have answered, who is right; and the next picture of a turn.
function judge() {
  const answered = cards.filter((card) => card.result?.gesture === gesture);
  if (answered.length < cards.length) return;
  const named = (isRight) => cards.filter((card) => card.isRight === isRight);
  const parts = [];
  if (named(true).length) parts.push(`${listed(named(true).map((card) => card.model.title))} ${named(true).length > 1 ? "know" : "knows"} the ${value("category")}`);
  for (const card of named(false)) parts.push(`${listed([card.model.title])} says ${card.said}`);
  if (left === 0) write(part("#view-verdict"), `${parts.join("; ")}.`);
  if (left > 0) setTimeout(turn, 40);
}

function turn() {
  if (left === 0) return;
  left -= 1;
  if (left === 0) stop();
  dial.set(dial.value + 36 / TURN);
  changed();
}

function stop() {
  left = 0;
  write(part("#view-turn"), "Turn it once around");
}

const looker = () => part("#view-looker input:checked")?.value;

// The chosen step and head over the toy, and all of them in small.
function draw() {
  const card = cards.find((one) => one.model.name === looker());
  const [crop, whole] = known.crop;
  const common = { picture, crop, whole };
  const { heat = [], hottest = 2 } = card?.result ?? {};
  const isShown = part("#view-heat").checked && heat.length > 0;
  const heads = heat[Math.min(chosen.step, heat.length - 1)];
  drawHeat(part("#view-picture"), {
    ...common, hottest, heat: isShown ? headOf(heads, chosen.head) : [], frame: colours().accent,
  });
  for (const { canvas, step, head, button } of film) {
    if (heat[step]) drawHeat(canvas, { ...common, shown: crop, hottest, heat: headOf(heat[step], head) });
    button.setAttribute("aria-pressed", String(step === chosen.step && head === chosen.head));
  }
  write(part("#view-scale"), heat.length
    ? `Heat: attention from an even share (grey) to ${hottest.toFixed(1)} times that (bright), averaged over templates. Click a picture to lay it over the toy.`
    : "DeepSets has no attention to look at.");
}

// A row for each step, a column for each head, and their mean.
function offerFilm() {
  const { model } = cards.find((card) => card.model.name === looker()) ?? {};
  film = [];
  const rows = [];
  if (model) {
    const headed = (words) => element("span", { textContent: words });
    const heads = Array.from({ length: model.num_heads + 1 }, (_, head) => (head < model.num_heads ? `head ${head + 1}` : "mean"));
    rows.push(element("div", { className: "film-row", attributes: { "aria-hidden": "true" } }, headed(""), ...heads.map(headed)));
    for (let step = 0; step < model.num_steps; step += 1) {
      const cells = heads.map((words, head) => {
        const canvas = element("canvas", { attributes: { "aria-hidden": "true" } });
        const button = element("button", { type: "button", ariaLabel: `Step ${step + 1}, ${words}` }, canvas);
        button.addEventListener("click", () => {
          chosen = { step, head };
          draw();
        });
        film.push({ canvas, button, step, head });
        return button;
      });
      rows.push(element("div", { className: "film-row" }, headed(`step ${step + 1}`), ...cells));
    }
    chosen = { step: model.num_steps - 1, head: model.num_heads };
    part("#view-film").style.setProperty("--columns", heads.length);
  }
  part("#view-film").replaceChildren(...rows);
  draw();
}

function offerLookers() {
  for (const { model } of cards.filter((card) => card.model.num_steps > 0)) {
    const input = element("input", { type: "radio", name: "looker", value: model.name });
    part("#view-looker").append(element("label", {}, input, element("span", { textContent: model.title })));
  }
  const first = part("#view-looker input");
  if (first) first.checked = true;
  offerFilm();
}

// The toys of the chosen source, and which of them training had.
function offerToys() {
  const chosen = value("instance");
  part("#view-instance").replaceChildren(...Array.from({ length: 10 }, (_, index) => new Option(
    `${index + 1}, ${source().trained_instances.includes(index) ? "of training" : "never in training"}`, index)));
  part("#view-instance").value = chosen || "0";
  write(part("#view-about"), source().about);
}

function listen() {
  for (const name of ["elevation", "lighting"]) part(`#view-${name}`).addEventListener("input", another);
  for (const name of ["category", "instance"]) part(`#view-${name}`).addEventListener("change", another);
  part("#view-source").addEventListener("change", () => {
    offerToys();
    dial.offer(source().azimuth_step);
    another();
  });
  part("#view-heat").addEventListener("change", draw);
  part("#view-looker").addEventListener("change", offerFilm);
  part("#view-turn").addEventListener("click", () => {
    if (left > 0) {
      stop();
      return;
    }
    left = TURN;
    write(part("#view-turn"), "Stop turning");
    dial.set(dial.value - (dial.value % 2)); // views that training could have had
    turn();
  });
  document.addEventListener("colours", () => known && draw());
  new ResizeObserver(() => known && draw()).observe(part("#view-picture"));
}

async function begin() {
  try {
    known = await ask("/api/viewpoints/known");
    dial = new Dial(part("#view-dial"), {
      training: known.training_azimuths, describe,
      changed: () => {
        stop();
        changed();
      },
    });
    part("#view-category").append(...CATEGORIES.map((name) => new Option(name, name)));
    part("#view-source").append(...known.sources.map(({ name, title }) => new Option(title, name)));
    part("#view-source").disabled = known.sources.length < 2;
    offerToys();
    part("#view-category").value = "truck";
    cards = known.models.map(makeCard);
    part("#view-cards").append(...cards.map((card) => card.element));
    offerLookers();
    listen();
    changed();
  } catch (error) {
    tell(error.message);
  }
}

begin();

export function leave() {
  stop();
}
