// A dial for the azimuth, in tens of degrees; azimuths in the training data are marked.

import { svgElement } from "/static/element.js";

const RADIUS = 92;

function onCircle(azimuth, radius) {
  const angle = (azimuth * 10 * Math.PI) / 180;
  return [radius * Math.sin(angle), -radius * Math.cos(angle)];
}

export class Dial {
  // `changed` is called with the azimuth and the event; `describe` returns the text of an azimuth for screen readers.
  constructor(svg, { training, changed, describe }) {
    Object.assign(this, { svg, training, changed, describe });
    this.value = 0;
    this.step = 1;
    this.turning = false;
    const trained = this.arc();
    this.needle = svgElement("line", { class: "needle", x1: 0, y1: 0 });
    this.knob = svgElement("circle", { class: "knob", r: 11 });
    this.label = svgElement("text", { x: 0, y: 34 });
    this.ticks = svgElement("g", {});
    svg.append(svgElement("circle", { class: "disc", r: 112 }), trained, this.ticks, this.needle, this.knob, this.label);
    this.setStep(1);
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.turning = true;
      svg.setPointerCapture(event.pointerId);
      this.point(event);
    });
    svg.addEventListener("pointermove", (event) => this.turning && this.point(event));
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, () => { this.turning = false; });
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  // An arc over the azimuths in the training data, which are contiguous and include 0.
  arc() {
    const around = this.training.map((azimuth) => (azimuth > 18 ? azimuth - 36 : azimuth)).sort((a, b) => a - b);
    const [x, y] = onCircle(around[0], RADIUS);
    const [right, down] = onCircle(around.at(-1), RADIUS);
    return svgElement("path", { class: "trained-arc", d: `M ${x} ${y} A ${RADIUS} ${RADIUS} 0 0 1 ${right} ${down}` });
  }

  // Sets the spacing of the available azimuths, in tens of degrees.
  setStep(step) {
    this.step = step;
    this.ticks.replaceChildren();
    for (let azimuth = 0; azimuth < 36; azimuth += step) {
      const [cx, cy] = onCircle(azimuth, RADIUS);
      const trained = this.training.includes(azimuth);
      this.ticks.append(svgElement("circle", { class: trained ? "tick trained" : "tick", cx, cy, r: trained ? 5 : 2.5 }));
    }
    this.set(Math.round(this.value / step) * step);
  }

  set(azimuth) {
    this.value = ((azimuth % 36) + 36) % 36;
    const [x, y] = onCircle(this.value, RADIUS - 4);
    this.needle.setAttribute("x2", x);
    this.needle.setAttribute("y2", y);
    this.knob.setAttribute("cx", x);
    this.knob.setAttribute("cy", y);
    this.label.textContent = `${this.value * 10}°`;
    this.svg.setAttribute("aria-valuenow", this.value * 10);
    this.svg.setAttribute("aria-valuetext", this.describe(this.value));
  }

  choose(azimuth, event) {
    const before = this.value;
    this.set(azimuth);
    if (this.value !== before) this.changed(this.value, event);
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const [right, up] = [event.clientX - box.left - box.width / 2, box.top + box.height / 2 - event.clientY];
    const turned = (Math.atan2(right, up) * 18) / Math.PI;
    this.choose(Math.round(turned / this.step) * this.step, event);
  }

  key(event) {
    const turns = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 4, PageDown: -4 };
    if (event.key === "Home") this.choose(0, event);
    else if (event.key in turns) this.choose(this.value + this.step * turns[event.key], event);
    else return;
    event.preventDefault();
  }
}
