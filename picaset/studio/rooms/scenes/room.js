// The room: a scene, what a network sees in it step by step, and what each of its templates looks at.

import { ask, Newest, pictureOf } from "/static/ask.js";
import { element, offer, segments, write } from "/static/element.js";
import { tell } from "/static/notice.js";
import { Picture } from "./picture.js";

const section = document.querySelector("#room-scenes");
const part = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
let known = null;
let models = [];
let gesture = 0;
let seed = 1;
let kept = null; // the template that was clicked
let pointed = null; // the one that is hovered or focused

const picture = new Picture({
  canvas: part("#scene-canvas"), marks: part("#scene-marks"),
  point: (template) => point(template),
  keep: (template) => keep(template),
});

// Always the newest; the networks are asked about what is there to be seen.
const pictures = new Newest({
  patience: Infinity, // a scene that is being rendered is rendered to its end, whether or not anybody waits
  send: ({ scene }, signal) => pictureOf(`/api/scenes/picture?${new URLSearchParams(scene)}`, { signal }),
  show: (image, question) => {
    if (question.gesture !== gesture) return;
    picture.image = image;
    drawPicture();
    write(part("#scene-verdict"), "Waiting for the networks …");
    for (const model of models) model.newest.want(question);
  },
  fail: (error, question) => {
    if (question.gesture !== gesture) return;
    tell(error.message);
    write(part("#scene-verdict"), error.message);
    write(part("#scene-counts"), "no picture");
  },
});

const chosen = () => models.find((model) => model.name === part("#scene-model input:checked")?.value);
const step = () => Number(part("#scene-step").value);
const current = () => pointed ?? kept;
const stepOf = (model) => model?.result?.steps[Math.min(step(), model.result.steps.length - 1)];

// Another scene: of this one nothing is left.
function wantScene() {
  gesture += 1;
  kept = pointed = null;
  const objects = part("#scene-objects").value;
  const scene = { source: part("#scene-source").value, seed, ...(objects && { objects: Number(objects) }) };
  write(part("#scene-verdict"), "Rendering a scene …");
  for (const model of models) {
    model.result = null;
    model.problem = "";
  }
  picture.image = null;
  pictures.want({ gesture, scene });
  show();
}

function makeModel(model) {
  const made = { ...model, result: null, problem: "" };
  made.newest = new Newest({
    patience: 0, // an older scene is of no use
    send: (question, signal) => ask("/api/scenes/seen", {
      body: JSON.stringify({ model: model.name, scene: question.scene, page, gesture: question.gesture }), signal,
    }),
    show: (result) => {
      if (result.gesture !== gesture) return;
      made.result = result;
      judge();
      if (made === chosen()) show();
    },
    fail: (error, question) => {
      if (question.gesture !== gesture) return;
      made.problem = error.message;
      judge();
      if (made === chosen()) show();
    },
  });
  return made;
}

function counts(model, { predictions, missed }) {
  const right = predictions.filter((one) => one.right).length;
  return `${right} of ${model.result.there.length} found, ${predictions.length - right} wrong, ${missed.length} missed`;
}

// All networks at their last step.
function judge() {
  const parts = models.filter((model) => model.result || model.problem)
    .map((model) => `${model.title}: ${model.result ? counts(model, model.result.steps.at(-1)) : model.problem.replace(/\.$/, "")}`);
  if (parts.length) write(part("#scene-verdict"), `${parts.join("; ")}.`);
}

// What the chosen network sees after the chosen step.
function show() {
  const model = chosen();
  const seen = stepOf(model);
  const last = model?.num_steps || Number(part("#scene-step").max);
  part("#scene-step").max = last;
  write(part("#scene-step-shown"), step() === 0 ? "0 (before it looks)" : `${step()} of ${last}`);
  write(part("#scene-model-about"), model ? `${model.about}${model.result ? ` ${model.result.milliseconds.toFixed(0)} ms.` : ""}` : "");
  write(part("#scene-counts"), seen ? counts(model, seen) : model?.problem || "waiting");
  const predictions = seen?.predictions ?? [];
  const missed = (seen?.missed ?? []).map((number) => model.result.there[number]);
  part("#scene-list").replaceChildren(...predictions.map(entry));
  part("#scene-missed").replaceChildren(...missed.map(({ words }) => element("li", {},
    element("span", { className: "sign missed", textContent: "□" }), ` ${words}`)));
  part("#scene-missed-title").hidden = missed.length === 0;
  part("#scene-canvas").setAttribute("aria-label", seen ? `The scene. ${model.title}: ${counts(model, seen)}` : "The scene");
  picture.mark(predictions, missed, current());
  drawPicture();
}

function entry({ words, right, presence, template }, index) {
  const button = element("button", { type: "button", data: { template: String(template) }, attributes: { "aria-pressed": String(template === kept) } },
    element("span", { className: "number", textContent: `${index + 1}` }),
    element("span", { className: `sign ${right ? "found" : "wrong"}`, textContent: right ? "●" : "◆" }),
    element("span", { textContent: right ? words : `${words} (wrong)` }),
    element("span", { className: "sure number", textContent: presence.toFixed(2), title: "How sure it is that there is one" }));
  button.addEventListener("pointerenter", () => point(template));
  button.addEventListener("pointerleave", () => point(null));
  button.addEventListener("focus", () => point(template));
  button.addEventListener("blur", () => point(null));
  button.addEventListener("click", () => keep(template));
  return element("li", {}, button);
}

function point(template) {
  pointed = template;
  picture.light(current());
  for (const button of section.querySelectorAll("#scene-list button")) {
    button.classList.toggle("current", Number(button.dataset.template) === current());
  }
  drawPicture();
}

function keep(template) {
  kept = kept === template ? null : template;
  if (kept === null) pointed = null;
  for (const button of section.querySelectorAll("#scene-list button")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.template) === kept));
  }
  point(pointed);
}

function drawPicture() {
  const attention = stepOf(chosen())?.attention ?? [];
  picture.draw(current() === null ? null : attention[current()]);
}

function listen() {
  part("#scene-new").addEventListener("click", () => {
    seed += 1;
    wantScene();
  });
  part("#scene-step").addEventListener("input", show);
  part("#scene-model").addEventListener("change", () => {
    kept = pointed = null;
    show();
  });
  part("#scene-objects").addEventListener("change", wantScene);
  part("#scene-source").addEventListener("change", () => {
    write(part("#scene-about"), known.sources.find((one) => one.name === part("#scene-source").value).about);
    wantScene();
  });
  new ResizeObserver(drawPicture).observe(part("#scene-canvas"));
}

async function begin() {
  try {
    known = await ask("/api/scenes/known");
    offer(part("#scene-source"), known.sources);
    write(part("#scene-about"), known.sources[0].about);
    const numbers = Array.from({ length: known.most - known.fewest + 1 }, (_, index) => String(known.fewest + index));
    offer(part("#scene-objects"), [{ name: "", title: "any number" }, ...numbers.map((name) => ({ name, title: name }))]);
    models = known.models.map(makeModel);
    segments(part("#scene-model"), "scene-model", models);
    part("#scene-step").max = Math.max(...models.map((model) => model.num_steps));
    part("#scene-step").value = part("#scene-step").max;
    listen();
    wantScene();
  } catch (error) {
    tell(error.message);
  }
}

begin();
