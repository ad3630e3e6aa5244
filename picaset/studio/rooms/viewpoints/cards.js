// The card of a network: the probability of each category, and the azimuths at which it has been correct so far.

import { element, formatTime, setText } from "/static/element.js";

const STRIP = "One bar per azimuth, 0° in the middle: tall if correct, short and hatched if wrong, flat if not tested; "
  + "azimuths in the training data are underlined";

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
    const around = [...this.cells.slice(18), ...this.cells.slice(0, 18)]; // the training data is in the middle
    this.strip = element("div", { className: "azimuths", title: STRIP, attributes: { "aria-hidden": "true" } }, ...around);
    this.tally = element("p", { className: "hint number" });
    this.element = element("article", { className: "panel view-card waiting", data: { model: model.name } },
      element("div", { className: "top" }, element("h3", { textContent: model.title }), this.time),
      element("p", { className: "hint about", textContent: model.about }), this.badge,
      element("ol", { className: "odds" }, ...this.rows.map(({ row }) => row)),
      element("p", { className: "hint strip-title", textContent: "Correct predictions by azimuth" }), this.strip, this.tally);
    this.reset();
  }

  // Removes the results of the previous toy.
  reset() {
    this.clear("waiting");
    this.tested = new Map();
    for (const cell of this.cells) cell.classList.remove("right", "wrong");
    setText(this.tally, "No azimuth tested yet.");
  }

  show(result, { category, azimuth }) {
    this.result = result;
    this.answeredGesture = result.gesture;
    const top = result.probabilities.indexOf(Math.max(...result.probabilities));
    this.isCorrect = this.categories[top] === category;
    this.predicted = this.categories[top];
    this.element.classList.remove("waiting");
    setText(this.time, formatTime(result.milliseconds));
    this.badge.className = `badge ${this.isCorrect ? "good" : "bad"}`;
    setText(this.badge, this.isCorrect ? `✓ ${this.predicted}` : `✗ ${this.predicted}`);
    this.rows.forEach(({ row, bar, number }, index) => {
      row.className = index === top ? `chosen ${this.isCorrect ? "right" : ""}` : "";
      bar.style.width = `${(100 * result.probabilities[index]).toFixed(1)}%`;
      setText(number, result.probabilities[index].toFixed(2));
    });
    this.tested.set(azimuth, this.isCorrect);
    this.cells[azimuth].classList.toggle("right", this.isCorrect);
    this.cells[azimuth].classList.toggle("wrong", !this.isCorrect);
    const [familiar, novel] = [true, false].map((isTrained) => this.formatCount((azimuth) => this.training.includes(azimuth) === isTrained));
    setText(this.tally, `Correct at ${familiar} training azimuths, at ${novel} others.`);
  }

  // Formats the number of correct predictions at the azimuths that a filter accepts.
  formatCount(accepts) {
    const tested = [...this.tested].filter(([azimuth]) => accepts(azimuth));
    return `${tested.filter(([, isCorrect]) => isCorrect).length} of ${tested.length}`;
  }

  // There is no prediction for this view.
  fail(message, gesture) {
    this.clear(message);
    this.answeredGesture = gesture;
  }

  clear(text) {
    this.result = null;
    this.answeredGesture = null;
    this.element.classList.add("waiting");
    this.badge.className = "badge";
    setText(this.badge, text);
    setText(this.time, "");
    for (const { row, bar, number } of this.rows) {
      row.className = "";
      bar.style.width = "0";
      setText(number, "–");
    }
  }
}
