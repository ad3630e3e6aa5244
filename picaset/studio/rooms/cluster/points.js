// The set of points with its history, and the transformation of all points.
// Stored positions are untransformed; shift, scale and rotation are applied when they are shown and sent.

export const MAX_POINTS = 5000;

export class Points {
  constructor() {
    this.all = [];
    this.from = ""; // name of the example
    this.past = [];
    this.future = [];
  }

  saveState() {
    this.past.push({ all: this.all.map((point) => [...point]), from: this.from });
    if (this.past.length > 100) this.past.shift();
    this.future = [];
  }

  undo() {
    return this.restore(this.past, this.future);
  }

  redo() {
    return this.restore(this.future, this.past);
  }

  restore(from, to) {
    if (!from.length) return false;
    to.push({ all: this.all, from: this.from });
    Object.assign(this, from.pop());
    return true;
  }

  replace(points, from) {
    this.saveState();
    this.from = from;
    this.all = points.map(([x, y]) => [x, y]);
  }

  add(position) {
    if (this.all.length >= MAX_POINTS) return false;
    this.all.push([...position]);
    return true;
  }

  spray(position, deviation, count = 12) {
    for (let index = 0; index < count; index += 1) {
      const radius = deviation * Math.sqrt(-2 * Math.log(1 - Math.random()));
      const angle = 2 * Math.PI * Math.random();
      if (!this.add([position[0] + radius * Math.cos(angle), position[1] + radius * Math.sin(angle)])) return false;
    }
    return true;
  }

  erase(position, radius) {
    const before = this.all.length;
    this.all = this.all.filter(([x, y]) => Math.hypot(x - position[0], y - position[1]) > radius);
    return this.all.length < before;
  }

  nearest(position, radius) {
    let nearest = -1;
    let smallest = radius;
    this.all.forEach(([x, y], index) => {
      const distance = Math.hypot(x - position[0], y - position[1]);
      if (distance < smallest) [nearest, smallest] = [index, distance];
    });
    return nearest;
  }
}

// Like Move in picaset/lab/data/gaussian_mixtures.py: scale and rotate about the origin, then shift along both axes.
export class Move {
  constructor({ shift = 0, scale = 1, degrees = 0 } = {}) {
    Object.assign(this, { shift, scale, degrees });
    const angle = (degrees * Math.PI) / 180;
    this.cos = Math.cos(angle);
    this.sin = Math.sin(angle);
  }

  apply([x, y]) {
    return [this.scale * (x * this.cos - y * this.sin) + this.shift, this.scale * (x * this.sin + y * this.cos) + this.shift];
  }

  invert([x, y]) {
    const [u, v] = [(x - this.shift) / this.scale, (y - this.shift) / this.scale];
    return [u * this.cos + v * this.sin, -u * this.sin + v * this.cos];
  }
}

export function boundsOf(points) {
  const bounds = { left: Infinity, right: -Infinity, low: Infinity, high: -Infinity };
  for (const [x, y] of points) {
    bounds.left = Math.min(bounds.left, x);
    bounds.right = Math.max(bounds.right, x);
    bounds.low = Math.min(bounds.low, y);
    bounds.high = Math.max(bounds.high, y);
  }
  return bounds;
}
