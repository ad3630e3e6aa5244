// The room: a toy on a turntable, a card for each network, and where each looks.

import { ask, Newest, pictureOf } from "/static/ask.js";
import { element, listed, offer, segments, write } from "/static/element.js";
import { tell } from "/static/notice.js";
import { colours } from "/static/palette.js";
import { Card } from "./cards.js";
import { Dial } from "./dial.js";
import { drawHeat, headOf } from "./heat.js";

const section = document.querySelector("#room-viewpoints");
const part = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
const TURN = 18; // pictures of a whole turn
const TURNING = "Turn it once around";
const PATIENCE = 150; // milliseconds that a new picture waits for its heat
let known = null;
let dial = null;
let cards = [];
let film = [];
let chosen = { step: 0, head: 0 };
let gesture = 0;
let picture = null; // what was taken, and for which gesture
let late = null; // the timer of a picture that waits
let left = 0; // pictures of the turn that are still to come
let isTour = false; // what is shown is one of them

const value = (name) => part(`#view-${name}`).value;
const view = () => ({
  source: value("source"), category: value("category"), instance: Number(value("instance")),
  elevation: Number(value("elevation")), azimuth: dial.value, lighting: Number(value("lighting")),
});

// Whether it is still the toy that is chosen, in the chosen light; azimuths follow one another while a hand turns it.
function isChosen(asked) {
  const now = view();
  return ["source", "category", "instance", "elevation", "lighting"].every((name) => now[name] === asked[name]);
}

// One picture at a time, always the newest next; the networks are asked about what is there to be seen.
const pictures = new Newest({
  send: (question, signal) => pictureOf(`/api/viewpoints/picture?${new URLSearchParams(question.view)}`, { signal }),
  show: (image, question) => {
    if (!isChosen(question.view)) return;
    picture = { image, gesture: question.gesture };
    late ??= setTimeout(() => { // with its heat, if that comes sooner
      late = null;
      draw();
    }, PATIENCE);
    for (const card of cards) card.newest.want(question);
  },
  fail: (error) => {
    tell(error.message);
    if (pictures.next !== null) return;
    stop();
    for (const card of cards) card.clear("no picture");
    write(part("#view-verdict"), error.message);
  },
});

function degreesAway(azimuth) {
  return Math.min(...known.training_azimuths.map((one) => Math.min((azimuth - one + 36) % 36, (one - azimuth + 36) % 36))) * 10;
}

const source = () => known.sources.find((one) => one.name === value("source"));

function describe(azimuth) {
  const away = degreesAway(azimuth);
  return `${azimuth * 10} degrees, ${away ? `${away} degrees from the nearest of training` : "an azimuth of training"}`;
}

// Something turned: everyone is asked again.
function changed() {
  gesture += 1;
  const shown = view();
  tellPlace(shown);
  part("#view-picture").setAttribute("aria-label", `The toy, ${shown.category} ${shown.instance + 1}, azimuth ${shown.azimuth * 10} degrees`);
  pictures.want({ gesture, view: shown });
}

// What training had of this view, and what it had not.
function tellPlace({ azimuth, elevation, lighting, instance }) {
  const away = degreesAway(azimuth);
  const { trained_elevations: elevations, trained_lightings: lightings, trained_instances: toys } = source();
  const parts = [
    [`this azimuth${away ? ` (${away}° away)` : ""}`, away === 0], ["this elevation", elevations.includes(elevation)],
    ["this lighting", lightings.includes(lighting)], ["this toy", toys.includes(instance)],
  ];
  const named = (had) => listed(parts.filter(([, one]) => one === had).map(([words]) => words));
  const [old, fresh] = [named(true), named(false)];
  write(part("#view-place"), [old && `Training had ${old}.`, fresh && `New to the networks: ${fresh}.`].filter(Boolean).join(" "));
  const lights = Number(part("#view-lighting").max) + 1;
  for (const [name, words, had] of [
    ["elevation", `${30 + 5 * elevation}°`, elevations.includes(elevation)],
    ["lighting", `${lighting + 1} of ${lights}`, lightings.includes(lighting)],
  ]) {
    write(part(`#view-${name}-shown`), words);
    part(`#view-${name}`).setAttribute("aria-valuetext", `${words}, ${had ? "as in training" : "never in training"}`);
  }
}

function another() {
  stop();
  for (const card of cards) card.forget();
  write(part("#view-verdict"), "Waiting for the answers …");
  changed();
}

function makeCard(model) {
  const card = new Card(model, known.categories, known.training_azimuths);
  card.newest = new Newest({
    send: (question, signal) => ask("/api/viewpoints/seen", {
      body: JSON.stringify({ model: model.name, view: question.view, page, gesture: question.gesture }), signal,
    }),
    show: (result, question) => {
      if (!isChosen(question.view)) return;
      card.show(result, question.view);
      if (model.name === looker()) draw();
      judge();
    },
    fail: (error, question) => {
      if (!isChosen(question.view)) return;
      card.fail(error.message, question.gesture);
      if (model.name === looker()) draw();
      judge();
    },
  });
  return card;
}

// Once all have answered, or cannot, who is right; and the next picture of a turn.
function judge() {
  if (cards.some((card) => card.answered !== gesture)) return;
  const answered = cards.filter((card) => card.result !== null);
  if (answered.length === 0) {
    stop();
    write(part("#view-verdict"), "No network has an answer.");
    return;
  }
  const named = (isRight) => answered.filter((card) => card.isRight === isRight);
  const parts = [];
  if (named(true).length) parts.push(`${listed(named(true).map((card) => card.model.title))} ${named(true).length > 1 ? "know" : "knows"} the ${value("category")}`);
  for (const card of named(false)) parts.push(`${listed([card.model.title])} says ${card.said}`);
  if (left > 0) setTimeout(turn, 40);
  else write(part("#view-verdict"), isTour ? sumUp(answered) : `${parts.join("; ")}.`);
}

// Who was right how often, all around.
function sumUp(some) {
  const parts = some.map((card) => `${listed([card.model.title])} right at ${card.count(() => true)}`);
  return `Once around the ${value("category")}: ${parts.join(", ")}.`;
}

function turn() {
  if (left === 0) return;
  left -= 1;
  if (left === 0) write(part("#view-turn"), TURNING);
  dial.set(dial.value + 36 / TURN);
  changed();
}

function stop() {
  left = 0;
  isTour = false;
  write(part("#view-turn"), TURNING);
}

const looker = () => part("#view-looker input:checked")?.value;

// The chosen step and head over the toy, and all of them in small.
function draw() {
  const card = cards.find((one) => one.model.name === looker());
  const [crop, whole] = known.crop;
  const common = { picture: picture?.image, crop, whole };
  const { heat = [], hottest = 2 } = picture && card?.result?.gesture === picture.gesture ? card.result : {};
  const isShown = part("#view-heat").checked && heat.length > 0;
  const heads = heat[Math.min(chosen.step, heat.length - 1)];
  drawHeat(part("#view-picture"), {
    ...common, hottest, heat: isShown ? headOf(heads, chosen.head) : [], frame: colours().accent,
  });
  for (const { canvas, step, head, button } of film) {
    drawHeat(canvas, { ...common, shown: crop, hottest, heat: heat[step] ? headOf(heat[step], head) : [] });
    button.setAttribute("aria-pressed", String(step === chosen.step && head === chosen.head));
  }
  write(part("#view-scale"), card
    ? `Heat: attention from an even share (grey) to ${hottest.toFixed(1)} times that (bright), averaged over templates. Click a picture to lay it over the toy.`
    : "None of these networks has attention to look at.");
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
  segments(part("#view-looker"), "looker", known.models.filter((model) => model.num_steps > 0));
  offerFilm();
}

// The toys of the chosen source, and which of them training had.
function offerToys() {
  const before = value("instance");
  offer(part("#view-instance"), Array.from({ length: known.instances }, (_, index) => ({
    name: index, title: `${index + 1}, ${source().trained_instances.includes(index) ? "of training" : "never in training"}`,
  })));
  part("#view-instance").value = before || "0";
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
    isTour = true;
    pictures.forget();
    for (const card of cards) {
      card.newest.forget();
      card.forget(); // all are counted over the same pictures
    }
    write(part("#view-verdict"), "Once around the toy …");
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
    offer(part("#view-category"), known.categories.map((name) => ({ name, title: name })));
    offer(part("#view-source"), known.sources);
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
