// One tile for each face: its picture, what each network says of it, and what is true of it once that is revealed.

import { element, write } from "/static/element.js";

export function inWords(name) {
  return name.replaceAll("_", " ").toLowerCase();
}

export class Tile {
  constructor(face, source, models, { swap, remove }) {
    this.face = face;
    this.place = element("span", { className: "place" });
    this.swap = element("button", { type: "button", textContent: "↻", title: "Swap for another face" });
    this.remove = element("button", { type: "button", textContent: "×", title: "Remove this face" });
    this.swap.addEventListener("click", () => swap(this));
    this.remove.addEventListener("click", () => remove(this));
    this.image = element("img", { src: `/api/odd/face/${source}/${face.number}`, width: 128, height: 128 });
    this.image.addEventListener("error", () => this.image.replaceWith(
      element("p", { className: "hint", textContent: "This picture cannot be shown." })));
    this.truth = element("p", { className: "truth" });
    this.said = models.map((model, index) => {
      const bar = element("div", { className: "bar" });
      const number = element("span", { className: "number", textContent: "–" });
      const row = element("div", { className: "said waiting", data: { model: String(index) } },
        element("span", { className: "who", textContent: model.title }), number,
        element("div", { className: "track", attributes: { "aria-hidden": "true" } }, bar));
      return { row, bar, number };
    });
    this.element = element("li", { className: "face" },
      element("div", { className: "head" }, this.place, element("span", {}, this.swap, this.remove)),
      this.image, ...this.said.map(({ row }) => row), this.truth);
  }

  number(place) {
    write(this.place, `Face ${place + 1}`);
    this.image.alt = `Face ${place + 1}`;
    this.swap.ariaLabel = `Swap face ${place + 1} for another`;
    this.remove.ariaLabel = `Remove face ${place + 1}`;
  }

  show(model, score, isTop) {
    const { row, bar, number } = this.said[model];
    row.classList.remove("waiting");
    row.classList.toggle("top", isTop);
    bar.style.width = `${(100 * score).toFixed(1)}%`;
    write(number, `${isTop ? "◆ " : ""}${score.toFixed(2)}`);
    this.frame();
  }

  wait() {
    for (const { row } of this.said) row.classList.add("waiting");
  }

  // The most suspicious of any network is framed.
  frame() {
    this.element.classList.toggle("suspected", this.said.some(({ row }) => row.classList.contains("top")));
  }

  // How many of the two attributes the face has.
  shares(pair) {
    return pair.filter((name) => this.face.attributes.includes(name)).length;
  }

  reveal(pair, isShown) {
    const shares = this.shares(pair);
    const has = pair.filter((name) => this.face.attributes.includes(name)).map(inWords);
    this.element.classList.toggle("is-odd", isShown && shares === 0);
    write(this.truth, !isShown ? "" : shares === 0 ? "odd: has neither" : has.join(", "));
  }
}
