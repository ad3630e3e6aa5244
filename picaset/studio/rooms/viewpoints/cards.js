// One card for each network: how likely each category is, and at which azimuths it has been right so far.

import { element, write } from "/static/element.js";

const STRIP = "One bar for each azimuth, 0° in the middle: tall where it was right, short and hatched where it was wrong, "
  + "flat where it was not asked; underlined are the azimuths of training";

export class Card {
  constructor(model, categories, training) {
    Object.assign(this, { model, categories, training });
    this.badge = element("span", { className: "badge" });
    this.time = element("span", { className: "hint number" });
    this.rows = categories.map((name) => {
      const bar = element("div", { className: "bar" });
      const number = element("span", { className: "number" });
      const row = element("li", {}, element("span", { textContent: name }),
        element("div", { className: "track", attributes: { "aria-hidden": "true" } }, bar), number);
      return { row, bar, number };
    });
    this.cells = Array.from({ length: 36 }, (_, azimuth) => element("i", { className: training.includes(azimuth) ? "trained" : "" }));
    const around = [...this.cells.slice(18), ...this.cells.slice(0, 18)]; // what training had is in the middle
    this.strip = element("div", { className: "seen", title: STRIP, attributes: { "aria-hidden": "true" } }, ...around);
    this.tally = element("p", { className: "hint number" });
    this.element = element("article", { className: "panel view-card waiting", data: { model: model.name } },
      element("div", { className: "top" }, element("h3", { textContent: model.title }), this.time),
      element("p", { className: "hint about", textContent: model.about }), this.badge,
      element("ol", { className: "odds" }, ...this.rows.map(({ row }) => row)),
      element("p", { className: "hint strip-title", textContent: "Where it was right" }), this.strip, this.tally);
    this.forget();
  }

  // Another toy: nothing is known of it yet.
  forget() {
    this.clear("waiting");
    this.seen = new Map();
    for (const cell of this.cells) cell.classList.remove("right", "wrong");
    write(this.tally, "Around the toy: nothing seen yet.");
  }

  show(result, { category, azimuth }) {
    this.result = result;
    this.answered = result.gesture;
    const top = result.probabilities.indexOf(Math.max(...result.probabilities));
    this.isRight = this.categories[top] === category;
    this.said = this.categories[top];
    this.element.classList.remove("waiting");
    write(this.time, `${result.milliseconds.toFixed(result.milliseconds < 10 ? 1 : 0)} ms`);
    this.badge.className = `badge ${this.isRight ? "good" : "bad"}`;
    write(this.badge, this.isRight ? `✓ ${this.said}` : `✗ says ${this.said}`);
    this.rows.forEach(({ row, bar, number }, index) => {
      row.className = index === top ? `chosen ${this.isRight ? "right" : ""}` : "";
      bar.style.width = `${(100 * result.probabilities[index]).toFixed(1)}%`;
      write(number, result.probabilities[index].toFixed(2));
    });
    this.seen.set(azimuth, this.isRight);
    this.cells[azimuth].classList.toggle("right", this.isRight);
    this.cells[azimuth].classList.toggle("wrong", !this.isRight);
    const [familiar, others] = [true, false].map((had) => this.count((place) => this.training.includes(place) === had));
    write(this.tally, `Around the toy: right at ${familiar} azimuths of training, at ${others} others.`);
  }

  // Of the azimuths that are meant, at how many it was right.
  count(isMeant) {
    const some = [...this.seen].filter(([place]) => isMeant(place));
    return `${some.filter(([, right]) => right).length} of ${some.length}`;
  }

  // For this gesture there is no answer.
  fail(message, gesture) {
    this.clear(message);
    this.answered = gesture;
  }

  clear(words) {
    this.result = null;
    this.answered = null;
    this.element.classList.add("waiting");
    this.badge.className = "badge";
    write(this.badge, words);
    write(this.time, "");
    for (const { row, bar, number } of this.rows) {
      row.className = "";
      bar.style.width = "0";
      write(number, "–");
    }
  }
}
