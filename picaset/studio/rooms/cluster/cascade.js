// The cascade at work: a step, a template, and where it looks.

import { ask, Newest } from "/static/ask.js";
import { segments } from "/static/element.js";
import { boundsOf } from "./points.js";
import { View } from "./view.js";
import { inWords } from "./cards.js";

const PAUSE = 1100; // milliseconds between steps while playing

export class Cascade {
  constructor(section, { colours, matching }) {
    Object.assign(this, { colours, matching });
    this.part = (selector) => section.querySelector(selector);
    this.steps = [];
    this.film = [];
    this.points = [];
    this.playing = null;
    this.view = new View(this.part("#cascade"), () => this.draw());
    this.newest = new Newest({
      send: (question, signal) => ask("/api/cluster/steps", { body: question.body(this.method), signal }),
      show: (answer, question) => this.show(answer, question.points),
      fail: (error) => this.clear(error.message),
      pause: 600, // the cards come first
    });
    this.part("#cascade-method").addEventListener("change", () => this.last && this.want(this.last));
    this.part("#step").addEventListener("input", () => this.draw());
    this.part("#play").addEventListener("click", () => (this.playing ? this.stop() : this.play()));
    this.part("#templates").addEventListener("change", () => this.draw());
  }

  get method() {
    return this.part("#cascade-method").value;
  }

  get step() {
    return Number(this.part("#step").value);
  }

  get template() {
    return this.part("#templates input:checked")?.value ?? "all";
  }

  want(question) {
    this.last = question;
    this.newest.want(question);
  }

  // There is nothing to ask about.
  forget(why) {
    this.last = null;
    this.newest.forget();
    this.clear(why);
  }

  // Nothing is shown of earlier points.
  clear(why) {
    this.stop();
    this.steps = [];
    this.points = [];
    this.draw();
    this.part("#cascade-state").textContent = why;
    this.part("#cascade").setAttribute("aria-label", `The cascade: ${why}`);
  }

  show(answer, points) {
    this.steps = answer.steps;
    this.points = points;
    const slider = this.part("#step");
    if (Number(slider.max) !== answer.steps.length - 1) slider.max = answer.steps.length - 1;
    this.offerTemplates(answer.steps[0].components.length);
    this.offerFilm(answer.steps.length);
    this.draw();
  }

  offerTemplates(count) {
    const place = this.part("#templates");
    if (place.querySelectorAll("input").length === count + 1) return;
    const each = Array.from({ length: count }, (_, index) => ({ name: String(index), title: `Template ${index + 1}` }));
    segments(place, "template", [{ name: "all", title: "All templates" }, ...each]);
  }

  play() {
    const slider = this.part("#step");
    slider.value = 0;
    this.draw();
    this.part("#play").textContent = "Stop";
    this.part("#play").setAttribute("aria-pressed", "true");
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
    this.part("#play").textContent = "Play";
    this.part("#play").setAttribute("aria-pressed", "false");
  }

  draw() {
    this.part("#step-shown").textContent = this.step === 0 ? "0 (learned start)" : `${this.step} of ${this.part("#step").max}`;
    if (!this.steps.length) {
      this.view.clear();
      for (const { view, words } of this.film) {
        view.clear();
        words.textContent = "";
      }
      return;
    }
    const shown = Math.min(this.step, this.steps.length - 1);
    this.tell(this.steps[shown], this.drawStep(this.view, shown, 3.4));
    this.film.forEach(({ figure, view, words }, index) => {
      figure.classList.toggle("current", index === shown);
      words.textContent = `${index ? `step ${index}` : "start"}: ${inWords(this.steps[index].log_likelihood)}`;
      this.drawStep(view, index, 1.8);
    });
  }

  // Returns how many circles are out of view.
  drawStep(view, number, size) {
    const step = this.steps[number];
    const colours = this.colours();
    const order = this.matching.colours(this.steps.at(-1).components);
    const colourOf = (index) => colours.components[order[index] % colours.components.length];
    const { left, right, low, high } = boundsOf(this.points);
    const more = 0.2 * Math.max(right - left, high - low, 0.5);
    view.clear();
    view.frame({ left: left - more, right: right + more, low: low - more, high: high + more });
    view.trainedSquare(colours);
    const { looked, by } = this.attention(step);
    view.dots(this.points, { colour: () => colours.muted, size: size / 2, alpha: () => 0.35 });
    if (step.attention.length) {
      view.dots(this.points, { colour: (index) => colourOf(by[index]), size, alpha: (index) => (looked[index] / 255) ** 0.6 });
    }
    const chosen = this.template === "all" ? step.components.map((_, index) => index) : [Number(this.template)];
    return view.circles(chosen.map((index) => step.components[index]), (index) => colourOf(chosen[index]), colours);
  }

  // A small picture of every step; a click goes there.
  offerFilm(count) {
    if (this.film.length === count) return;
    this.film = Array.from({ length: count }, (_, index) => {
      const figure = document.createElement("figure");
      const canvas = document.createElement("canvas");
      const words = document.createElement("figcaption");
      figure.append(canvas, words);
      figure.addEventListener("click", () => {
        this.stop();
        this.part("#step").value = index;
        this.draw();
      });
      this.part("#film").append(figure);
      return { figure, words, view: new View(canvas, () => this.draw()) };
    });
  }

  attention(step) {
    const rows = step.attention;
    if (!rows.length) return { looked: [], by: [] };
    if (this.template !== "all") {
      const chosen = Number(this.template);
      return { looked: rows[chosen], by: rows[chosen].map(() => chosen) };
    }
    const by = rows[0].map((_, point) => rows.reduce((best, row, index) => (row[point] > rows[best][point] ? index : best), 0));
    return { looked: by.map((template, point) => rows[template][point]), by };
  }

  tell(step, outside) {
    const missing = outside ? `; ${outside} circle${outside > 1 ? "s" : ""} out of view` : "";
    const words = `Log-likelihood ${inWords(step.log_likelihood)}${missing}`;
    this.part("#cascade-state").textContent = words;
    this.part("#cascade").setAttribute("aria-label", `Step ${this.step} of the cascade. ${words}`);
  }
}
