// The tile of a face: its image, its score by each network, and its attributes once the solution is revealed.

import { element, setText } from "/static/element.js";

export function formatAttribute(name) {
  return name.replaceAll("_", " ").toLowerCase();
}

export class Tile {
  constructor(face, source, models, { guess, swap, remove }) {
    this.face = face;
    this.label = element("span", { className: "place" });
    this.swap = element("button", { type: "button", textContent: "↻", title: "Replace with another face" });
    this.remove = element("button", { type: "button", textContent: "×", title: "Remove this face" });
    this.swap.addEventListener("click", () => swap(this));
    this.remove.addEventListener("click", () => remove(this));
    this.choose = element("button", { type: "button", className: "choose", title: "Choose as the odd one" });
    this.choose.addEventListener("click", () => guess(this));
    this.image = element("img", { src: `/api/odd/face/${source}/${face.number}`, width: 128, height: 128 });
    this.image.addEventListener("error", () => this.image.replaceWith(
      element("p", { className: "hint", textContent: "This image cannot be loaded." })));
    this.choose.append(this.image);
    this.solution = element("p", { className: "solution" });
    this.scores = models.map((model, index) => {
      const bar = element("div", { className: "bar" });
      const number = element("span", { className: "number", textContent: "–" });
      const row = element("div", { className: "face-score waiting", data: { model: String(index) } },
        element("span", { className: "network", textContent: model.title }), number,
        element("div", { className: "track", attributes: { "aria-hidden": "true" } }, bar));
      return { row, bar, number };
    });
    this.element = element("li", { className: "face" },
      element("div", { className: "head" }, this.label, element("span", {}, this.swap, this.remove)),
      this.choose, ...this.scores.map(({ row }) => row), this.solution);
  }

  setNumber(index) {
    setText(this.label, `Face ${index + 1}`);
    this.image.alt = `Face ${index + 1}`;
    this.choose.ariaLabel = `Choose face ${index + 1} as the odd one`;
    this.swap.ariaLabel = `Replace face ${index + 1} with another`;
    this.remove.ariaLabel = `Remove face ${index + 1}`;
  }

  show(model, score, isTop) {
    const { row, bar, number } = this.scores[model];
    row.classList.remove("waiting");
    row.classList.toggle("top", isTop);
    bar.style.width = `${(100 * score).toFixed(1)}%`;
    setText(number, `${isTop ? "◆ " : ""}${score.toFixed(2)}`);
    this.frame();
  }

  wait() {
    for (const { row } of this.scores) row.classList.add("waiting");
  }

  // Frames the face if it has the highest score of any network.
  frame() {
    this.element.classList.toggle("suspected", this.scores.some(({ row }) => row.classList.contains("top")));
  }

  // Number of attributes of the pair that the face has.
  countShared(pair) {
    return pair.filter((name) => this.face.attributes.includes(name)).length;
  }

  reveal(pair, isRevealed, isGuess) {
    const shared = this.countShared(pair);
    const has = pair.filter((name) => this.face.attributes.includes(name)).map(formatAttribute);
    this.element.classList.toggle("is-odd", isRevealed && shared === 0);
    this.element.classList.toggle("is-guess", isRevealed && isGuess);
    this.choose.disabled = isRevealed;
    const text = shared === 0 ? "odd one out: has neither" : has.join(", ");
    setText(this.solution, isRevealed ? `${isGuess ? "your guess; " : ""}${text}` : "");
  }
}
