// The attention steps of a network: its mixture after each step, and the attention of its templates.

import { fetchJson, LatestRequest } from "/static/request.js";
import { fillSegments, fillSelect } from "/static/element.js";
import { boundsOf } from "./points.js";
import { View } from "./view.js";
import { formatLikelihood } from "./cards.js";

const PAUSE = 1100; // milliseconds between steps while playing

export class Cascade {
  constructor(section, { colours, matching }) {
    Object.assign(this, { colours, matching });
    this.find = (selector) => section.querySelector(selector);
    this.steps = [];
    this.film = [];
    this.points = [];
    this.playing = null;
    this.view = new View(this.find("#cascade"), () => this.draw());
    this.latest = new LatestRequest({
      send: (query, request) => fetchJson("/api/cluster/steps", { body: query.body(this.method), ...request }),
      show: (result, query) => this.show(result, query.points),
      fail: (error) => this.clear(error.message),
      pause: 600, // leaves the server to the cards
    });
    this.find("#cascade-method").addEventListener("change", () => this.last && this.submit(this.last));
    this.find("#step").addEventListener("input", () => this.draw());
    this.find("#play").addEventListener("click", () => (this.playing ? this.stop() : this.play()));
    this.find("#templates").addEventListener("change", () => this.draw());
    this.hasPlayed = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.isVisible = false;
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.isVisible = isIntersecting;
      this.playOnce();
    }, { threshold: 0.5 }).observe(this.find("#cascade"));
  }

  get method() {
    return this.find("#cascade-method").value;
  }

  get step() {
    return Number(this.find("#step").value);
  }

  get template() {
    return this.find("#templates input:checked")?.value ?? "all";
  }

  // Lists the networks with attention steps; without any, the panel is hidden.
  listMethods(methods) {
    const choices = methods.filter((method) => method.num_steps > 0);
    fillSelect(this.find("#cascade-method"), choices);
    this.find(".cascade").hidden = choices.length === 0;
  }

  submit(query) {
    if (!this.method) return;
    this.last = query;
    this.latest.submit(query);
  }

  // Cancels the request and shows a reason instead of results.
  cancel(reason) {
    this.last = null;
    this.latest.cancel();
    this.clear(reason);
  }

  // Removes earlier results and shows the reason.
  clear(reason) {
    this.stop();
    this.steps = [];
    this.points = [];
    this.draw();
    this.find("#cascade-state").textContent = reason;
    this.find("#cascade").setAttribute("aria-label", `Attention steps: ${reason}`);
  }

  show(result, points) {
    this.steps = result.steps;
    this.points = points;
    const slider = this.find("#step");
    if (Number(slider.max) !== result.steps.length - 1) slider.value = slider.max = result.steps.length - 1;
    this.listTemplates(result.steps[0].components.length);
    this.buildFilm(result.steps.length);
    this.draw();
    this.playOnce();
  }

  // Plays when the steps are first seen, unless the visitor prefers reduced motion.
  playOnce() {
    if (this.hasPlayed || !this.isVisible || this.steps.length < 2) return;
    this.hasPlayed = true;
    this.play();
  }

  listTemplates(count) {
    const fieldset = this.find("#templates");
    if (fieldset.querySelectorAll("input").length === count + 1) return;
    const each = Array.from({ length: count }, (_, index) => ({ name: String(index), title: `Template ${index + 1}` }));
    fillSegments(fieldset, "template", [{ name: "all", title: "All templates" }, ...each]);
  }

  play() {
    const slider = this.find("#step");
    slider.value = 0;
    this.draw();
    this.find("#play").textContent = "Stop";
    this.find("#play").setAttribute("aria-pressed", "true");
    this.playing = setInterval(() => {
      if (this.step >= Number(slider.max)) {
        this.stop();
        return;
      }
      slider.value = this.step + 1;
      this.draw();
    }, PAUSE);
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    this.find("#play").textContent = "Play";
    this.find("#play").setAttribute("aria-pressed", "false");
  }

  draw() {
    this.find("#step-shown").textContent = this.step === 0 ? "0 (start)" : `${this.step} of ${this.find("#step").max}`;
    if (!this.steps.length) {
      this.view.clear();
      for (const { view, caption } of this.film) {
        view.clear();
        caption.textContent = "";
      }
      return;
    }
    const shown = Math.min(this.step, this.steps.length - 1);
    this.describe(this.steps[shown], this.drawStep(this.view, shown, 3.4));
    this.film.forEach(({ figure, view, caption }, index) => {
      figure.classList.toggle("current", index === shown);
      caption.textContent = `${index ? `step ${index}` : "start"}: ${formatLikelihood(this.steps[index].log_likelihood)}`;
      this.drawStep(view, index, 1.8);
    });
  }

  // Returns the number of components out of view.
  drawStep(view, number, size) {
    const step = this.steps[number];
    const colours = this.colours();
    const order = this.matching.colours(this.steps.at(-1).components);
    const colourOf = (index) => colours.components[order[index] % colours.components.length];
    const { left, right, low, high } = boundsOf(this.points);
    const margin = 0.2 * Math.max(right - left, high - low, 0.5);
    view.clear();
    view.frame({ left: left - margin, right: right + margin, low: low - margin, high: high + margin });
    view.drawTrainingSquare(colours);
    const { weights, templates } = this.attention(step);
    view.drawPoints(this.points, { colour: () => colours.muted, size: size / 2, alpha: () => 0.35 });
    if (step.attention.length) {
      view.drawPoints(this.points, { colour: (index) => colourOf(templates[index]), size, alpha: (index) => (weights[index] / 255) ** 0.6 });
    }
    const chosen = this.template === "all" ? step.components.map((_, index) => index) : [Number(this.template)];
    return view.drawComponents(chosen.map((index) => step.components[index]), (index) => colourOf(chosen[index]), colours);
  }

  // One small picture per step; a click selects the step.
  buildFilm(count) {
    if (this.film.length === count) return;
    this.film = Array.from({ length: count }, (_, index) => {
      const figure = document.createElement("figure");
      const canvas = document.createElement("canvas");
      const caption = document.createElement("figcaption");
      figure.append(canvas, caption);
      figure.addEventListener("click", () => {
        this.stop();
        this.find("#step").value = index;
        this.draw();
      });
      this.find("#film").append(figure);
      return { figure, caption, view: new View(canvas, () => this.draw()) };
    });
  }

  // The attention to each point: of the chosen template, or of the one with the largest weight.
  attention(step) {
    const rows = step.attention;
    if (!rows.length) return { weights: [], templates: [] };
    if (this.template !== "all") {
      const chosen = Number(this.template);
      return { weights: rows[chosen], templates: rows[chosen].map(() => chosen) };
    }
    const templates = rows[0].map((_, point) => rows.reduce((best, row, index) => (row[point] > rows[best][point] ? index : best), 0));
    return { weights: templates.map((template, point) => rows[template][point]), templates };
  }

  describe(step, outside) {
    const missing = outside ? `; ${outside} component${outside > 1 ? "s" : ""} out of view` : "";
    const text = `Log-likelihood ${formatLikelihood(step.log_likelihood)}${missing}`;
    this.find("#cascade-state").textContent = text;
    this.find("#cascade").setAttribute("aria-label", `Attention step ${this.step}. ${text}`);
  }
}
