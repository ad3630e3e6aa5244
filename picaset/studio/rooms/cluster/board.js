// The board on which points are drawn; all tools work by mouse, touch and keyboard.

import { boundsOf } from "./points.js";
import { TRAINING_RANGE, View } from "./view.js";

const REACH = 14; // pixels within which a click grabs a point
const ERASER = 18; // radius in pixels
const SPRAY = 0.3; // standard deviation of a sprayed cluster, as in the training data

export class Board {
  // `changed` is called with the event after every change of the points, `report` with a message, `full` when no more points fit.
  constructor({ canvas, points, move, tool, colours, changed, report, full }) {
    Object.assign(this, { canvas, points, move, tool, colours, changed, report, full });
    this.cursor = null; // position of the keyboard cursor
    this.held = -1;
    this.isDragging = false;
    this.framesTable = false; // whether the view shows the points alone, without the training square
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
    return this.points.all.map((point) => move.apply(point));
  }

  // Shows all points, and the training square unless they are a table with units of its own. Not while dragging: points would move away from the pointer.
  reframe() {
    if (this.isDragging) return;
    const margin = TRAINING_RANGE + 1;
    const square = this.framesTable ? [] : [[-margin, -margin], [margin, margin]];
    this.view.frame(boundsOf([...this.moved(), ...square]));
  }

  draw() {
    const { view } = this;
    const colours = this.colours();
    this.reframe();
    view.clear();
    view.grid(colours);
    view.drawTrainingSquare(colours, "training data lies here");
    view.drawPoints(this.moved(), { colour: () => colours.ink, size: 2.6, alpha: () => 0.7 });
    if (this.held >= 0 && this.held < this.points.all.length) {
      view.drawPoints([this.move().apply(this.points.all[this.held])], { colour: () => colours.accent, size: 6 });
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

  positionOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.view.toWorld([event.clientX - box.left, event.clientY - box.top]);
  }

  press(event) {
    if (event.button !== 0) return;
    this.canvas.focus({ preventScroll: true });
    this.cursor = null;
    this.canvas.setPointerCapture(event.pointerId);
    const position = this.positionOf(event);
    this.isDragging = true;
    if (this.tool() === "move") {
      this.held = this.nearest(position);
      if (this.held >= 0) this.points.saveState();
      this.draw();
      return;
    }
    this.points.saveState();
    this.apply(position, event);
  }

  drag(event) {
    if (!this.isDragging) return;
    const position = this.positionOf(event);
    const tool = this.tool();
    if (tool === "move" && this.held >= 0) {
      this.points.all[this.held] = this.move().invert(position);
      this.draw();
      this.changed(event);
    } else if (tool === "spray" || tool === "erase") {
      this.apply(position, event);
    }
  }

  release() {
    if (!this.isDragging) return;
    this.isDragging = false;
    this.held = -1;
    this.draw();
  }

  nearest(position) {
    const move = this.move();
    return this.points.nearest(move.invert(position), REACH / this.view.scale / move.scale);
  }

  // Applies the current tool at a position.
  apply(position, event) {
    const move = this.move();
    const base = move.invert(position);
    const tool = this.tool();
    const isDone = {
      add: () => this.points.add(base),
      spray: () => this.points.spray(base, SPRAY),
      erase: () => this.points.erase(base, ERASER / this.view.scale / move.scale) || true,
    }[tool]();
    if (!isDone) this.full();
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
        this.points.all[this.held] = this.move().invert(this.cursor);
        this.changed(event);
      } else {
        this.report(`Cursor at ${this.cursor.map((value) => value.toFixed(1)).join(", ")}`);
      }
    } else if (event.key === " " || event.key === "Enter") {
      this.cursor ??= [...this.view.centre];
      this.act(event);
    } else if (event.key === "Escape" && this.held >= 0) {
      this.held = -1;
      this.report("Point dropped.");
    } else {
      return;
    }
    event.preventDefault();
    this.draw();
  }

  act(event) {
    if (this.tool() !== "move") {
      this.points.saveState();
      this.apply(this.cursor, event);
      return;
    }
    if (this.held >= 0) {
      this.held = -1;
      this.report("Point dropped.");
      return;
    }
    this.held = this.points.nearest(this.move().invert(this.cursor), Infinity);
    if (this.held < 0) return;
    this.points.saveState();
    this.cursor = this.move().apply(this.points.all[this.held]);
    this.report("Picked up the nearest point; arrow keys move it, Space drops it.");
  }
}
