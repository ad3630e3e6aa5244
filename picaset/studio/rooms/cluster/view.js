// Maps a square of the plane to a canvas and draws grid, points and components on it.

export const TRAINING_RANGE = 4; // means of the training mixtures lie in [-4, 4] x [-4, 4]

export class View {
  constructor(canvas, redraw) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.centre = [0, 0];
    this.half = 5.5;
    new ResizeObserver(() => {
      this.measure();
      redraw();
    }).observe(canvas);
    this.measure();
  }

  measure() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    this.width = this.canvas.clientWidth || 300;
    this.height = this.canvas.clientHeight || 300;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  // Shows the bounds with a margin.
  frame({ left, right, low, high }) {
    this.centre = [(left + right) / 2, (low + high) / 2];
    this.half = Math.max((right - left) / 2, (high - low) / 2, 1e-6) * 1.1;
  }

  get scale() {
    return Math.min(this.width, this.height) / (2 * this.half);
  }

  toScreen([x, y]) {
    return [this.width / 2 + (x - this.centre[0]) * this.scale, this.height / 2 - (y - this.centre[1]) * this.scale];
  }

  toWorld([left, top]) {
    return [this.centre[0] + (left - this.width / 2) / this.scale, this.centre[1] - (top - this.height / 2) / this.scale];
  }

  clear() {
    this.context.clearRect(0, 0, this.width, this.height);
  }

  grid(colours) {
    const { context } = this;
    const step = niceStep(this.half / 2.5);
    const [left, high] = this.toWorld([0, 0]);
    const [right, low] = this.toWorld([this.width, this.height]);
    context.strokeStyle = colours.line;
    context.fillStyle = colours.muted;
    context.lineWidth = 1;
    context.font = "11px system-ui, sans-serif";
    for (let x = Math.ceil(left / step) * step; x <= right; x += step) {
      const [left] = this.toScreen([x, 0]);
      line(context, left, 0, left, this.height);
      context.fillText(tick(x), left + 3, this.height - 5);
    }
    for (let y = Math.ceil(low / step) * step; y <= high; y += step) {
      const [, top] = this.toScreen([0, y]);
      line(context, 0, top, this.width, top);
      context.fillText(tick(y), 4, top - 3);
    }
  }

  drawTrainingSquare(colours, label) {
    const { context } = this;
    const [left, top] = this.toScreen([-TRAINING_RANGE, TRAINING_RANGE]);
    const [right, bottom] = this.toScreen([TRAINING_RANGE, -TRAINING_RANGE]);
    if (right < 0 || bottom < 0 || left > this.width || top > this.height) return;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.setLineDash([6, 5]);
    context.strokeRect(left, top, right - left, bottom - top);
    context.setLineDash([]);
    if (label) {
      context.fillStyle = colours.accent;
      context.font = "12px system-ui, sans-serif";
      const text = context.measureText(label).width < right - left - 10 ? label : "training data";
      context.fillText(text, left + 5, bottom - 6);
    }
  }

  // Dots of equal colour and opacity are drawn as one path: a path per dot would be slower than all other drawing.
  drawPoints(points, { colour, size = 2.4, alpha = () => 0.85 }) {
    const { context } = this;
    const paths = new Map();
    points.forEach((point, index) => {
      const [left, top] = this.toScreen(point);
      if (left < -4 || top < -4 || left > this.width + 4 || top > this.height + 4) return;
      const opacity = Math.round(32 * alpha(index)) / 32;
      const key = `${opacity} ${colour(index)}`;
      if (!paths.has(key)) paths.set(key, { opacity, colour: colour(index), path: new Path2D() });
      const { path } = paths.get(key);
      path.moveTo(left + size, top);
      path.arc(left, top, size, 0, 2 * Math.PI);
    });
    for (const { opacity, colour: fill, path } of paths.values()) {
      context.globalAlpha = opacity;
      context.fillStyle = fill;
      context.fill(path);
    }
    context.globalAlpha = 1;
  }

  // Draws ellipses of two standard deviations, and arrows at the edge towards those out of view. Returns the number of those.
  drawComponents(components, colourOf, colours) {
    const { context } = this;
    let outside = 0;
    components.forEach((component, index) => {
      const [left, top] = this.toScreen(component.mean);
      const { along, across, angle } = axesOf(component.covariance);
      const radii = [along, across].map((deviation) => Math.min(2 * deviation * this.scale, 1e5));
      const colour = colourOf(index);
      context.strokeStyle = colour;
      context.fillStyle = colour;
      if (left < 0 || top < 0 || left > this.width || top > this.height) {
        outside += 1;
        this.arrow(left, top);
      }
      context.globalAlpha = 0.12;
      context.beginPath();
      context.ellipse(left, top, ...radii, -angle, 0, 2 * Math.PI);
      context.fill();
      context.globalAlpha = 1;
      context.lineWidth = 2;
      context.stroke();
      cross(context, left, top, colours.surface, colour);
    });
    return outside;
  }

  arrow(left, top) {
    const { context } = this;
    const middle = [this.width / 2, this.height / 2];
    const angle = Math.atan2(top - middle[1], left - middle[0]);
    const reach = Math.min(
      (middle[0] - 12) / Math.max(Math.abs(Math.cos(angle)), 1e-6),
      (middle[1] - 12) / Math.max(Math.abs(Math.sin(angle)), 1e-6),
    );
    context.save();
    context.translate(middle[0] + reach * Math.cos(angle), middle[1] + reach * Math.sin(angle));
    context.rotate(angle);
    context.beginPath();
    context.moveTo(9, 0);
    context.lineTo(-6, -6);
    context.lineTo(-6, 6);
    context.closePath();
    context.fill();
    context.restore();
  }
}

// Standard deviations along the axes of a covariance matrix, and the angle of the first.
export function axesOf([xx, xy, yy]) {
  const middle = (xx + yy) / 2;
  const reach = Math.hypot((xx - yy) / 2, xy);
  return {
    along: Math.sqrt(middle + reach), across: Math.sqrt(Math.max(middle - reach, 0)), angle: Math.atan2(2 * xy, xx - yy) / 2,
  };
}

function line(context, fromLeft, fromTop, toLeft, toTop) {
  context.beginPath();
  context.moveTo(fromLeft, fromTop);
  context.lineTo(toLeft, toTop);
  context.stroke();
}

function cross(context, left, top, inside, colour) {
  context.beginPath();
  context.arc(left, top, 4, 0, 2 * Math.PI);
  context.fillStyle = inside;
  context.fill();
  context.strokeStyle = colour;
  context.stroke();
}

function tick(value) {
  return String(Number(value.toPrecision(12)));
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const digit = [1, 2, 5, 10].find((candidate) => candidate * power >= rough);
  return digit * power;
}
