// The room of scenes: an image, the objects that a network predicts step by step, and the attention of its templates.

import { fetchJson, LatestRequest, fetchImage } from "/static/request.js";
import { element, fillSelect, fillSegments, setText } from "/static/element.js";
import { showNotice } from "/static/notice.js";
import { Picture } from "./picture.js";

const section = document.querySelector("#room-scenes");
const find = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
let options = null;
let models = [];
let gesture = 0;
let seed = 1;
let selected = null; // the template that was clicked
let hovered = null; // the one that is hovered or focused

const picture = new Picture({
  canvas: find("#scene-canvas"), marks: find("#scene-marks"),
  hover: (template) => hover(template),
  select: (template) => select(template),
});

// Loads the image; then the networks are asked for their predictions.
const pictures = new LatestRequest({
  patience: Infinity, // the server renders a scene to its end even if the request is cancelled
  send: ({ scene }, request) => fetchImage(`/api/scenes/picture?${new URLSearchParams(scene)}`, request),
  show: (image, query) => {
    if (query.gesture !== gesture) return;
    picture.image = image;
    drawPicture();
    setText(find("#scene-verdict"), "Waiting for the networks …");
    for (const model of models) model.latest.submit(query);
  },
  fail: (error, query) => {
    if (query.gesture !== gesture) return;
    showNotice(error.message);
    setText(find("#scene-verdict"), error.message);
    setText(find("#scene-counts"), "no image");
  },
});

const chosen = () => models.find((model) => model.name === find("#scene-model input:checked")?.value);
const step = () => Number(find("#scene-step").value);
const current = () => hovered ?? selected;
const stepOf = (model) => model?.result?.steps[Math.min(step(), model.result.steps.length - 1)];

// Requests another scene and removes everything of this one.
function requestScene() {
  gesture += 1;
  selected = hovered = null;
  const objects = find("#scene-objects").value;
  const scene = { source: find("#scene-source").value, seed, ...(objects && { objects: Number(objects) }) };
  setText(find("#scene-verdict"), "Rendering a scene …");
  for (const model of models) {
    model.result = null;
    model.problem = "";
  }
  picture.image = null;
  pictures.submit({ gesture, scene });
  show();
}

function makeModel(model) {
  const entry = { ...model, result: null, problem: "" };
  entry.latest = new LatestRequest({
    patience: 0, // results of an older scene are not shown
    send: (query, request) => fetchJson("/api/scenes/predict", {
      body: JSON.stringify({ model: model.name, scene: query.scene, page, gesture: query.gesture }), ...request,
    }),
    show: (result) => {
      if (result.gesture !== gesture) return;
      entry.result = result;
      summarize();
      if (entry === chosen()) show();
    },
    fail: (error, query) => {
      if (query.gesture !== gesture) return;
      entry.problem = error.message;
      summarize();
      if (entry === chosen()) show();
    },
  });
  return entry;
}

function formatCounts(model, { predictions, missed }) {
  const found = predictions.filter(({ correct }) => correct).length;
  return `${found} of ${model.result.objects.length} found, ${predictions.length - found} wrong, ${missed.length} missed`;
}

// Counts of all networks after their last step.
function summarize() {
  const parts = models.filter((model) => model.result || model.problem)
    .map((model) => `${model.title}: ${model.result ? formatCounts(model, model.result.steps.at(-1)) : model.problem.replace(/\.$/, "")}`);
  if (parts.length) setText(find("#scene-verdict"), `${parts.join("; ")}.`);
}

// Shows the predictions of the chosen network after the chosen step.
function show() {
  const model = chosen();
  const result = stepOf(model);
  const last = model?.num_steps || Number(find("#scene-step").max);
  find("#scene-step").max = last;
  setText(find("#scene-step-shown"), step() === 0 ? "0 (start)" : `${step()} of ${last}`);
  setText(find("#scene-model-about"), model ? `${model.about}${model.result ? ` ${model.result.milliseconds.toFixed(0)} ms.` : ""}` : "");
  setText(find("#scene-counts"), result ? formatCounts(model, result) : model?.problem || "waiting");
  const predictions = result?.predictions ?? [];
  const missed = (result?.missed ?? []).map((index) => model.result.objects[index]);
  find("#scene-list").replaceChildren(...predictions.map(listItem));
  find("#scene-missed").replaceChildren(...missed.map(({ description }) => element("li", {},
    element("span", { className: "sign missed", textContent: "□" }), ` ${description}`)));
  find("#scene-missed-title").hidden = missed.length === 0;
  find("#scene-canvas").setAttribute("aria-label", result ? `The scene. ${model.title}: ${formatCounts(model, result)}` : "The scene");
  picture.drawMarks(predictions, missed, current());
  drawPicture();
}

function listItem({ description, correct, presence, template }, index) {
  const button = element("button", { type: "button", data: { template: String(template) }, attributes: { "aria-pressed": String(template === selected) } },
    element("span", { className: "number", textContent: `${index + 1}` }),
    element("span", { className: `sign ${correct ? "found" : "wrong"}`, textContent: correct ? "●" : "◆" }),
    element("span", { textContent: correct ? description : `${description} (wrong)` }),
    element("span", { className: "sure number", textContent: presence.toFixed(2), title: "Predicted probability that the object exists" }));
  button.addEventListener("pointerenter", () => hover(template));
  button.addEventListener("pointerleave", () => hover(null));
  button.addEventListener("focus", () => hover(template));
  button.addEventListener("blur", () => hover(null));
  button.addEventListener("click", () => select(template));
  return element("li", {}, button);
}

function hover(template) {
  hovered = template;
  picture.highlight(current());
  for (const button of section.querySelectorAll("#scene-list button")) {
    button.classList.toggle("current", Number(button.dataset.template) === current());
  }
  drawPicture();
}

function select(template) {
  selected = selected === template ? null : template;
  if (selected === null) hovered = null;
  for (const button of section.querySelectorAll("#scene-list button")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.template) === selected));
  }
  hover(hovered);
}

function drawPicture() {
  const attention = stepOf(chosen())?.attention ?? [];
  picture.draw(current() === null ? null : attention[current()]);
}

function listen() {
  find("#scene-new").addEventListener("click", () => {
    seed += 1;
    requestScene();
  });
  find("#scene-step").addEventListener("input", show);
  find("#scene-model").addEventListener("change", () => {
    selected = hovered = null;
    show();
  });
  find("#scene-objects").addEventListener("change", requestScene);
  find("#scene-source").addEventListener("change", () => {
    setText(find("#scene-about"), options.sources.find(({ name }) => name === find("#scene-source").value).about);
    requestScene();
  });
  new ResizeObserver(drawPicture).observe(find("#scene-canvas"));
}

async function start() {
  try {
    options = await fetchJson("/api/scenes/options");
    fillSelect(find("#scene-source"), options.sources);
    setText(find("#scene-about"), options.sources[0].about);
    const numbers = Array.from({ length: options.most - options.fewest + 1 }, (_, index) => String(options.fewest + index));
    fillSelect(find("#scene-objects"), [{ name: "", title: "any number" }, ...numbers.map((name) => ({ name, title: name }))]);
    models = options.models.map(makeModel);
    fillSegments(find("#scene-model"), "scene-model", models);
    find("#scene-step").max = Math.max(...models.map((model) => model.num_steps));
    find("#scene-step").value = find("#scene-step").max;
    listen();
    requestScene();
  } catch (error) {
    showNotice(error.message);
  }
}

start();
