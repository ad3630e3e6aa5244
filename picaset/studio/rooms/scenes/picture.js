// The image of a scene with marks: discs for correct predictions, diamonds for wrong ones, squares for missed objects.
// The attention of the selected template is shown as brightness.

import { svgElement } from "/static/element.js";

const [WIDE, HIGH] = [300, 200];

export class Picture {
  // `hover` is called with the template that is pointed at, or null; `select` with the one that is clicked.
  constructor({ canvas, marks, hover, select }) {
    Object.assign(this, { canvas, marks, hover, select });
    this.image = null;
  }

  draw(attention) {
    const { canvas } = this;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [Math.round((canvas.clientWidth || WIDE) * ratio), Math.round((canvas.clientHeight || HIGH) * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    if (!this.image) return;
    context.imageSmoothingQuality = "high";
    context.drawImage(this.image, 0, 0, width, height);
    if (attention?.length) context.drawImage(shade(attention), 0, 0, width, height);
  }

  drawMarks(predictions, missed, current) {
    const shapes = missed.map(({ position: [x, y] }) => {
      const box = { x: x * WIDE - 8, y: y * HIGH - 8, width: 16, height: 16, class: "missed" };
      return svgElement("g", {}, svgElement("rect", box), svgElement("rect", box));
    });
    predictions.forEach(({ position: [x, y], correct, template }, index) => {
      const [left, top] = [x * WIDE, y * HIGH];
      const body = correct ? svgElement("circle", { class: "found", cx: left, cy: top, r: 6.5 })
        : svgElement("rect", { class: "wrong", x: left - 5.5, y: top - 5.5, width: 11, height: 11, transform: `rotate(45 ${left} ${top})` });
      const label = svgElement("text", { x: left, y: top }, String(index + 1));
      const group = svgElement("g", { class: template === current ? "current" : "", "data-template": template }, body, label);
      group.addEventListener("pointerenter", () => this.hover(template));
      group.addEventListener("pointerleave", () => this.hover(null));
      group.addEventListener("click", () => this.select(template));
      shapes.push(group);
    });
    this.marks.replaceChildren(...shapes);
  }

  highlight(current) {
    for (const group of this.marks.querySelectorAll("[data-template]")) {
      group.setAttribute("class", Number(group.dataset.template) === current ? "current" : "");
    }
  }
}

// A mask that is dark where attention is low.
function shade(attention) {
  const side = Math.round(Math.sqrt(attention.length));
  const small = document.createElement("canvas");
  Object.assign(small, { width: side, height: side });
  const context = small.getContext("2d");
  const pixels = context.createImageData(side, side);
  attention.forEach((weight, place) => { pixels.data[4 * place + 3] = Math.round(0.66 * (255 - weight)); });
  context.putImageData(pixels, 0, 0);
  return small;
}
