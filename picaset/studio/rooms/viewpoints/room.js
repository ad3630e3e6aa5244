// The room of viewpoints: a toy that can be turned, a card for each network, and the attention of the networks.

import { fetchJson, LatestRequest, fetchImage } from "/static/request.js";
import { element, joinNames, fillSelect, fillSegments, setText } from "/static/element.js";
import { showNotice } from "/static/notice.js";
import { readColours } from "/static/palette.js";
import { Card } from "./cards.js";
import { Dial } from "./dial.js";
import { drawHeat, selectHead } from "./heat.js";

const section = document.querySelector("#room-viewpoints");
const find = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
const TURN_VIEWS = 18; // views of a full turn
const TURN_LABEL = "Turn it once around";
const FIRST_AZIMUTH = 2; // in the training data, and easy to recognise
const PATIENCE = 150; // milliseconds that a new image waits for its attention map
let options = null;
let dial = null;
let cards = [];
let film = [];
let chosen = { step: 0, head: 0 };
let gesture = 0;
let picture = null; // the image and its gesture
let drawTimer = null;
let left = 0; // remaining views of a full turn
let isTurn = false; // the current view belongs to a full turn

const value = (name) => find(`#view-${name}`).value;
const view = () => ({
  source: value("source"), category: value("category"), instance: Number(value("instance")),
  elevation: Number(value("elevation")), azimuth: dial.value, lighting: Number(value("lighting")),
});

// Whether a view still shows the chosen toy, elevation and lighting; azimuths may differ while the dial is dragged.
function isChosen(other) {
  const now = view();
  return ["source", "category", "instance", "elevation", "lighting"].every((name) => now[name] === other[name]);
}

// Loads the image; then the networks are asked for their predictions.
const pictures = new LatestRequest({
  send: (query, request) => fetchImage(`/api/viewpoints/picture?${new URLSearchParams(query.view)}`, request),
  show: (image, query) => {
    if (!isChosen(query.view)) return;
    picture = { image, gesture: query.gesture };
    drawTimer ??= setTimeout(() => { // the attention map may come sooner
      drawTimer = null;
      draw();
    }, PATIENCE);
    for (const card of cards) card.latest.submit(query);
  },
  fail: (error) => {
    showNotice(error.message);
    if (pictures.next !== null) return;
    stop();
    for (const card of cards) card.clear("no image");
    setText(find("#view-verdict"), error.message);
  },
});

function degreesAway(azimuth) {
  return Math.min(...options.training_azimuths.map((trained) => Math.min((azimuth - trained + 36) % 36, (trained - azimuth + 36) % 36))) * 10;
}

const source = () => options.sources.find(({ name }) => name === value("source"));

function describe(azimuth) {
  const away = degreesAway(azimuth);
  return `${azimuth * 10} degrees, ${away ? `${away} degrees from the nearest in the training data` : "in the training data"}`;
}

// The view has changed: requests the image and all predictions.
function changed() {
  gesture += 1;
  const shown = view();
  describeView(shown);
  find("#view-picture").setAttribute("aria-label", `The toy, ${shown.category} ${shown.instance + 1}, azimuth ${shown.azimuth * 10} degrees`);
  pictures.submit({ gesture, view: shown });
}

// Says which properties of the view are in the training data.
function describeView({ azimuth, elevation, lighting, instance }) {
  const away = degreesAway(azimuth);
  const { trained_elevations: elevations, trained_lightings: lightings, trained_instances: instances } = source();
  const parts = [
    [`this azimuth${away ? ` (${away}° from the nearest)` : ""}`, away === 0], ["this elevation", elevations.includes(elevation)],
    ["this lighting", lightings.includes(lighting)], ["this toy", instances.includes(instance)],
  ];
  const named = (isTrained) => joinNames(parts.filter(([, trained]) => trained === isTrained).map(([text]) => text));
  const [familiar, novel] = [named(true), named(false)];
  setText(find("#view-place"), [familiar && `In the training data: ${familiar}.`, novel && `New to the networks: ${novel}.`].filter(Boolean).join(" "));
  const lights = Number(find("#view-lighting").max) + 1;
  for (const [name, text, isTrained] of [
    ["elevation", `${30 + 5 * elevation}°`, elevations.includes(elevation)],
    ["lighting", `${lighting + 1} of ${lights}`, lightings.includes(lighting)],
  ]) {
    setText(find(`#view-${name}-shown`), text);
    find(`#view-${name}`).setAttribute("aria-valuetext", `${text}, ${isTrained ? "in the training data" : "not in the training data"}`);
  }
}

function startOver() {
  stop();
  for (const card of cards) card.reset();
  setText(find("#view-verdict"), "Waiting for the predictions …");
  changed();
}

function makeCard(model) {
  const card = new Card(model, options.categories, options.training_azimuths);
  card.latest = new LatestRequest({
    send: (query, request) => fetchJson("/api/viewpoints/predict", {
      body: JSON.stringify({ model: model.name, view: query.view, page, gesture: query.gesture }), ...request,
    }),
    show: (result, query) => {
      if (!isChosen(query.view)) return;
      card.show(result, query.view);
      if (model.name === attentionModel()) draw();
      summarize();
    },
    fail: (error, query) => {
      if (!isChosen(query.view)) return;
      card.fail(error.message, query.gesture);
      if (model.name === attentionModel()) draw();
      summarize();
    },
  });
  return card;
}

// When all networks have answered or failed, says which are correct; during a turn, goes on to the next view.
function summarize() {
  if (cards.some((card) => card.answeredGesture !== gesture)) return;
  const answered = cards.filter((card) => card.result !== null);
  if (answered.length === 0) {
    stop();
    setText(find("#view-verdict"), "No network has a prediction.");
    return;
  }
  const correct = answered.filter((card) => card.isCorrect);
  const parts = [];
  if (correct.length) parts.push(`Correct (${value("category")}): ${joinNames(correct.map((card) => card.model.title))}`);
  for (const card of answered.filter(({ isCorrect }) => !isCorrect)) parts.push(`${joinNames([card.model.title])} predicts ${card.predicted}`);
  if (left > 0) setTimeout(turn, 40);
  else setText(find("#view-verdict"), isTurn ? describeTurn(answered) : `${parts.join("; ")}.`);
}

function describeTurn(answered) {
  const parts = answered.map((card) => `${joinNames([card.model.title])} correct at ${card.formatCount(() => true)}`);
  return `Full turn of the ${value("category")}: ${parts.join(", ")}.`;
}

function turn() {
  if (left === 0) return;
  left -= 1;
  if (left === 0) setText(find("#view-turn"), TURN_LABEL);
  dial.set(dial.value + 36 / TURN_VIEWS);
  changed();
}

function stop() {
  left = 0;
  isTurn = false;
  setText(find("#view-turn"), TURN_LABEL);
}

const attentionModel = () => find("#view-attention input:checked")?.value;

// Draws the map of the chosen step and head over the toy, and all maps in small.
function draw() {
  const card = cards.find(({ model }) => model.name === attentionModel());
  const [crop, whole] = options.crop;
  const common = { picture: picture?.image, crop, whole };
  const { heat = [], heat_limit: heatLimit = 2 } = picture && card?.result?.gesture === picture.gesture ? card.result : {};
  const isShown = find("#view-heat").checked && heat.length > 0;
  const heads = heat[Math.min(chosen.step, heat.length - 1)];
  drawHeat(find("#view-picture"), {
    ...common, heatLimit, heat: isShown ? selectHead(heads, chosen.head) : [], frame: readColours().accent,
  });
  for (const { canvas, step, head, button } of film) {
    drawHeat(canvas, { ...common, shown: crop, heatLimit, heat: heat[step] ? selectHead(heat[step], head) : [] });
    button.setAttribute("aria-pressed", String(step === chosen.step && head === chosen.head));
  }
  setText(find("#view-scale"), card
    ? `Colour: attention from uniform (grey) to ${heatLimit.toFixed(1)} times uniform (bright), averaged over templates. Click a map to show it over the toy.`
    : "None of these networks has attention.");
}

// Builds the small maps: one row per step, one column per head and one for their mean.
function buildFilm() {
  const { model } = cards.find((card) => card.model.name === attentionModel()) ?? {};
  film = [];
  const rows = [];
  if (model) {
    const caption = (text) => element("span", { textContent: text });
    const heads = Array.from({ length: model.num_heads + 1 }, (_, head) => (head < model.num_heads ? `head ${head + 1}` : "mean"));
    rows.push(element("div", { className: "film-row", attributes: { "aria-hidden": "true" } }, caption(""), ...heads.map(caption)));
    for (let step = 0; step < model.num_steps; step += 1) {
      const cells = heads.map((label, head) => {
        const canvas = element("canvas", { attributes: { "aria-hidden": "true" } });
        const button = element("button", { type: "button", ariaLabel: `Step ${step + 1}, ${label}` }, canvas);
        button.addEventListener("click", () => {
          chosen = { step, head };
          draw();
        });
        film.push({ canvas, button, step, head });
        return button;
      });
      rows.push(element("div", { className: "film-row" }, caption(`step ${step + 1}`), ...cells));
    }
    chosen = { step: model.num_steps - 1, head: model.num_heads };
    find("#view-film").style.setProperty("--columns", heads.length);
  }
  find("#view-film").replaceChildren(...rows);
  draw();
}

function listAttentionModels() {
  fillSegments(find("#view-attention"), "view-attention", options.models.filter((model) => model.num_steps > 0));
  buildFilm();
}

// Lists the toys of the chosen source, and which of them are in the training data.
function listToys() {
  const before = value("instance");
  fillSelect(find("#view-instance"), Array.from({ length: options.instances }, (_, index) => ({
    name: index, title: `${index + 1}, ${source().trained_instances.includes(index) ? "in training data" : "new"}`,
  })));
  find("#view-instance").value = before || "0";
  setText(find("#view-about"), source().about);
}

function listen() {
  for (const name of ["elevation", "lighting"]) find(`#view-${name}`).addEventListener("input", startOver);
  for (const name of ["category", "instance"]) find(`#view-${name}`).addEventListener("change", startOver);
  find("#view-source").addEventListener("change", () => {
    listToys();
    dial.setStep(source().azimuth_step);
    startOver();
  });
  find("#view-heat").addEventListener("change", draw);
  find("#view-attention").addEventListener("change", buildFilm);
  find("#view-turn").addEventListener("click", () => {
    if (left > 0) {
      stop();
      return;
    }
    left = TURN_VIEWS;
    isTurn = true;
    pictures.cancel();
    for (const card of cards) {
      card.latest.cancel();
      card.reset(); // so that all count the same views
    }
    setText(find("#view-verdict"), "Turning the toy …");
    setText(find("#view-turn"), "Stop turning");
    dial.set(dial.value - (dial.value % 2)); // the training data has every second azimuth
    turn();
  });
  document.addEventListener("colours", () => options && draw());
  new ResizeObserver(() => options && draw()).observe(find("#view-picture"));
}

async function start() {
  try {
    options = await fetchJson("/api/viewpoints/options");
    dial = new Dial(find("#view-dial"), {
      training: options.training_azimuths, describe,
      changed: () => {
        stop();
        changed();
      },
    });
    fillSelect(find("#view-category"), options.categories.map((name) => ({ name, title: name })));
    fillSelect(find("#view-source"), options.sources);
    listToys();
    find("#view-category").value = "animal";
    dial.set(FIRST_AZIMUTH);
    cards = options.models.map(makeCard);
    find("#view-cards").append(...cards.map((card) => card.element));
    listAttentionModels();
    listen();
    changed();
  } catch (error) {
    showNotice(error.message);
  }
}

start();

export function leave() {
  stop();
}
