// The points themselves: added, dragged, sprayed, erased, undone; and how all of them are moved at once.
// Positions are kept where they were put; shift, scale and rotation are applied on top.

export const MOST = 5000;

export class Points {
  constructor() {
    this.all = [];
    this.from = ""; // where they come from, by name
    this.past = [];
    this.future = [];
  }

  remember() {
    this.past.push({ all: this.all.map((point) => [...point]), from: this.from });
    if (this.past.length > 100) this.past.shift();
    this.future = [];
  }

  undo() {
    return this.travel(this.past, this.future);
  }

  redo() {
    return this.travel(this.future, this.past);
  }

  travel(from, to) {
    if (!from.length) return false;
    to.push({ all: this.all, from: this.from });
    Object.assign(this, from.pop());
    return true;
  }

  replace(points, from) {
    this.remember();
    this.from = from;
    this.all = points.map(([x, y]) => [x, y]);
  }

  add(place) {
    if (this.all.length >= MOST) return false;
    this.all.push([...place]);
    return true;
  }

  spray(place, deviation, count = 12) {
    for (let index = 0; index < count; index += 1) {
      const radius = deviation * Math.sqrt(-2 * Math.log(1 - Math.random()));
      const angle = 2 * Math.PI * Math.random();
      if (!this.add([place[0] + radius * Math.cos(angle), place[1] + radius * Math.sin(angle)])) return false;
    }
    return true;
  }

  erase(place, radius) {
    const before = this.all.length;
    this.all = this.all.filter(([x, y]) => Math.hypot(x - place[0], y - place[1]) > radius);
    return this.all.length < before;
  }

  nearest(place, radius) {
    let found = -1;
    let least = radius;
    this.all.forEach(([x, y], index) => {
      const distance = Math.hypot(x - place[0], y - place[1]);
      if (distance < least) [found, least] = [index, distance];
    });
    return found;
  }
}

// The same as Move in picaset/lab/data/gaussian_mixtures.py: scaled and rotated about the origin, then shifted along both axes.
export class Move {
  constructor({ shift = 0, scale = 1, degrees = 0 } = {}) {
    Object.assign(this, { shift, scale, degrees });
    const angle = (degrees * Math.PI) / 180;
    this.cos = Math.cos(angle);
    this.sin = Math.sin(angle);
  }

  there([x, y]) {
    return [this.scale * (x * this.cos - y * this.sin) + this.shift, this.scale * (x * this.sin + y * this.cos) + this.shift];
  }

  back([x, y]) {
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
