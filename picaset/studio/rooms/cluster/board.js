// The board: the same tools by mouse, by touch and by keyboard.

import { boundsOf } from "./points.js";
import { TRAINED, View } from "./view.js";

const REACH = 14; // pixels within which a point is taken
const WIPE = 18; // pixels that are wiped away
const SPRAY = 0.3; // deviation of a blob, as in training

export class Board {
  // `changed` is called after everything that moves points, with the event that did; `told` with what happened in words.
  constructor({ canvas, points, move, tool, colours, changed, told, full }) {
    Object.assign(this, { canvas, points, move, tool, colours, changed, told, full });
    this.cursor = null; // of the keyboard, in the plane
    this.held = -1;
    this.gesturing = false;
    this.view = new View(canvas, () => this.draw());
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.release());
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.held = -1;
      this.draw();
    });
  }

  moved() {
    const move = this.move();
    return this.points.all.map((point) => move.there(point));
  }

  // The square of training and all points; not while a hand is on them, or they would run away from it.
  reframe() {
    if (this.gesturing) return;
    const margin = TRAINED + 1;
    const bounds = boundsOf([...this.moved(), [-margin, -margin], [margin, margin]]);
    this.view.frame(bounds);
  }

  draw() {
    const { view } = this;
    const colours = this.colours();
    this.reframe();
    view.clear();
    view.grid(colours);
    view.trainedSquare(colours, "where the networks were trained");
    view.dots(this.moved(), { colour: () => colours.ink, size: 2.6, alpha: () => 0.7 });
    if (this.held >= 0 && this.held < this.points.all.length) {
      view.dots([this.move().there(this.points.all[this.held])], { colour: () => colours.accent, size: 6 });
    }
    if (this.cursor && document.activeElement === this.canvas) this.crosshair(colours);
  }

  crosshair(colours) {
    const [left, top] = this.view.toScreen(this.cursor);
    const { context } = this.view;
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(left - 12, top);
    context.lineTo(left + 12, top);
    context.moveTo(left, top - 12);
    context.lineTo(left, top + 12);
    context.stroke();
  }

  placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.view.toWorld([event.clientX - box.left, event.clientY - box.top]);
  }

  press(event) {
    if (event.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.cursor = null;
    this.canvas.setPointerCapture(event.pointerId);
    const place = this.placeOf(event);
    this.gesturing = true;
    if (this.tool() === "move") {
      this.held = this.nearest(place);
      if (this.held >= 0) this.points.remember();
      this.draw();
      return;
    }
    this.points.remember();
    this.apply(place, event);
  }

  drag(event) {
    if (!this.gesturing) return;
    const place = this.placeOf(event);
    const tool = this.tool();
    if (tool === "move" && this.held >= 0) {
      this.points.all[this.held] = this.move().back(place);
      this.draw();
      this.changed(event);
    } else if (tool === "spray" || tool === "erase") {
      this.apply(place, event);
    }
  }

  release() {
    if (!this.gesturing) return;
    this.gesturing = false;
    this.held = -1;
    this.draw();
  }

  nearest(place) {
    const move = this.move();
    return this.points.nearest(move.back(place), REACH / this.view.scale / move.scale);
  }

  // What a click does, wherever it comes from.
  apply(place, event) {
    const move = this.move();
    const base = move.back(place);
    const tool = this.tool();
    const done = {
      add: () => this.points.add(base),
      spray: () => this.points.spray(base, SPRAY),
      erase: () => this.points.erase(base, WIPE / this.view.scale / move.scale) || true,
    }[tool]();
    if (!done) this.full();
    this.draw();
    this.changed(event);
  }

  key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) {
      const far = ((event.shiftKey ? 10 : 1) * this.view.half) / 50;
      const [x, y] = this.cursor ?? this.view.centre;
      this.cursor = [x + far * steps[event.key][0], y + far * steps[event.key][1]];
      if (this.held >= 0) {
        this.points.all[this.held] = this.move().back(this.cursor);
        this.changed(event);
      } else {
        this.told(`Cross at ${this.cursor.map((value) => value.toFixed(1)).join(", ")}`);
      }
    } else if (event.key === " " || event.key === "Enter") {
      this.cursor ??= [...this.view.centre];
      this.act(event);
    } else if (event.key === "Escape" && this.held >= 0) {
      this.held = -1;
      this.told("Put down.");
    } else {
      return;
    }
    event.preventDefault();
    this.draw();
  }

  act(event) {
    if (this.tool() !== "move") {
      this.points.remember();
      this.apply(this.cursor, event);
      return;
    }
    if (this.held >= 0) {
      this.held = -1;
      this.told("Put down.");
      return;
    }
    this.held = this.points.nearest(this.move().back(this.cursor), Infinity);
    if (this.held < 0) return;
    this.points.remember();
    this.cursor = this.move().there(this.points.all[this.held]);
    this.told("Took up the nearest point; arrows move it, Space puts it down.");
  }
}
