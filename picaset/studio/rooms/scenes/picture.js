// The scene with its marks: a number where an object was found, a diamond where none is or it was found already, a square where one was missed.
// While a template is pointed at, the picture stays bright where it looked.

import { shape } from "/static/element.js";

const [WIDE, HIGH] = [300, 200];

export class Picture {
  // `point` is called with the template that is pointed at, or null; `keep` with the one that is clicked.
  constructor({ canvas, marks, point, keep }) {
    Object.assign(this, { canvas, marks, point, keep });
    this.image = null;
  }

  draw(look) {
    const { canvas } = this;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [Math.round((canvas.clientWidth || WIDE) * ratio), Math.round((canvas.clientHeight || HIGH) * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    if (!this.image) return;
    context.imageSmoothingQuality = "high";
    context.drawImage(this.image, 0, 0, width, height);
    if (look?.length) context.drawImage(shade(look), 0, 0, width, height);
  }

  mark(predictions, missed, current) {
    const shapes = missed.map(({ place: [x, y] }) => {
      const box = { x: x * WIDE - 8, y: y * HIGH - 8, width: 16, height: 16, class: "missed" };
      return shape("g", {}, shape("rect", box), shape("rect", box));
    });
    predictions.forEach(({ place: [x, y], right, template }, index) => {
      const [left, top] = [x * WIDE, y * HIGH];
      const body = right ? shape("circle", { class: "found", cx: left, cy: top, r: 6.5 })
        : shape("rect", { class: "wrong", x: left - 5.5, y: top - 5.5, width: 11, height: 11, transform: `rotate(45 ${left} ${top})` });
      const words = shape("text", { x: left, y: top }, String(index + 1));
      const made = shape("g", { class: template === current ? "current" : "", "data-template": template }, body, words);
      made.addEventListener("pointerenter", () => this.point(template));
      made.addEventListener("pointerleave", () => this.point(null));
      made.addEventListener("click", () => this.keep(template));
      shapes.push(made);
    });
    this.marks.replaceChildren(...shapes);
  }

  light(current) {
    for (const one of this.marks.querySelectorAll("[data-template]")) {
      one.setAttribute("class", Number(one.dataset.template) === current ? "current" : "");
    }
  }
}

// As dark as the place was looked at little.
function shade(look) {
  const side = Math.round(Math.sqrt(look.length));
  const small = document.createElement("canvas");
  Object.assign(small, { width: side, height: side });
  const context = small.getContext("2d");
  const pixels = context.createImageData(side, side);
  look.forEach((bright, place) => { pixels.data[4 * place + 3] = Math.round(0.66 * (255 - bright)); });
  context.putImageData(pixels, 0, 0);
  return small;
}
