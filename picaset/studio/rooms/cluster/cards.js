// One card for each method: the points in the colours of its components, its circles, its likelihood, its time.

import { listed } from "/static/element.js";
import { boundsOf } from "./points.js";
import { View } from "./view.js";

const GOOD = 0.3; // nats per point below the best
const LOST = 1.5;

export class Card {
  constructor(method, { colours, matching }) {
    Object.assign(this, { method, colours, matching });
    this.element = document.createElement("article");
    this.element.className = "card";
    this.element.dataset.method = method.name;
    this.element.innerHTML = `<h3></h3><p class="hint"></p><div class="picture"><canvas role="img"></canvas><p class="outside"></p></div>
<div class="measures"><span><span class="likelihood">–</span> <span class="unit">log-likelihood</span></span><span class="time"></span></div><span class="badge">waiting</span>`;
    this.part("h3").textContent = method.title;
    this.part("canvas").setAttribute("aria-label", `${method.title}: no result yet`);
    const always = method.fixed_components ? ` Always ${method.fixed_components} components.` : "";
    this.part(".hint").textContent = method.about + always;
    this.part(".likelihood").title = "Average log-likelihood of a point; higher is better";
    this.result = null;
    this.problem = ""; // why there is none
    this.points = [];
    this.view = new View(this.part("canvas"), () => this.draw());
  }

  part(selector) {
    return this.element.querySelector(selector);
  }

  show(result, points) {
    this.result = result;
    this.problem = "";
    this.points = points;
    this.element.classList.remove("stale");
    this.part(".likelihood").textContent = inWords(result.log_likelihood);
    this.part(".time").textContent = `${result.milliseconds.toFixed(result.milliseconds < 10 ? 1 : 0)} ms`;
    this.draw();
  }

  fail(message) {
    this.result = null;
    this.problem = message;
    this.part(".likelihood").textContent = "–";
    this.part(".time").textContent = "";
    this.part(".outside").textContent = message;
    this.part("canvas").setAttribute("aria-label", `${this.method.title}: ${message}`);
    this.judge(null);
    this.view.clear();
  }

  // Compared with the best of all methods on the same points.
  judge(best) {
    const badge = this.part(".badge");
    const below = this.result === null || best === null ? null : best - this.result.log_likelihood;
    if (below === null && badge.textContent === "waiting" && !this.part(".outside").textContent) return;
    this.verdict = below === null ? "" : below <= GOOD ? "good" : below <= LOST ? "fair" : "bad";
    const words = {
      "": "no result", good: "✓ good fit", fair: `~ rough, ${shortly(below)} below the best`,
      bad: `✗ loses the points, ${shortly(below)} below`,
    }[this.verdict];
    if (badge.textContent === words) return;
    badge.className = `badge ${this.verdict}`;
    badge.textContent = words;
  }

  // Drawn again if others have taken its colours since.
  recolour() {
    if (this.result !== null && String(this.matching.colours(this.result.components)) !== String(this.order)) this.draw();
  }

  draw() {
    const { view, result } = this;
    const colours = this.colours();
    view.clear();
    if (result === null) return;
    const bounds = boundsOf(this.points);
    view.frame(padded(bounds));
    view.trainedSquare(colours);
    this.order = this.matching.colours(result.components);
    const colourOf = (index) => colours.components[this.order[index] % colours.components.length];
    view.dots(this.points, { colour: (index) => colourOf(result.labels[index]), size: view.width < 220 ? 1.5 : 2 });
    const outside = view.circles(result.components, colourOf, colours);
    this.part(".outside").textContent = outside
      ? `${outside} of ${result.components.length} circles out of view` : "";
    const said = `${this.method.title}: ${result.components.length} components, log-likelihood ${inWords(result.log_likelihood)}`;
    this.part("canvas").setAttribute("aria-label", outside ? `${said}, ${outside} of them out of view` : said);
  }
}

export function inWords(likelihood) {
  return likelihood.toFixed(likelihood < -100 ? 0 : 2).replace("-", "−");
}

function shortly(difference) {
  if (difference === null) return "";
  return difference >= 100 ? String(Math.round(difference)) : difference.toFixed(1);
}

function padded({ left, right, low, high }) {
  const more = 0.15 * Math.max(right - left, high - low, 0.5);
  return { left: left - more, right: right + more, low: low - more, high: high + more };
}

// One sentence for all cards.
export function verdictOf(cards, shift) {
  const judged = cards.filter((card) => card.result !== null);
  if (!judged.length) return "";
  const named = (verdict) => judged.filter((card) => card.verdict === verdict).map((card) => card.method.title);
  const [good, rough, lost] = [named("good"), named("fair"), named("bad")];
  const where = shift === 0 ? "Points where they were put" : `Points shifted by ${shift > 0 ? "+" : "−"}${Math.abs(shift)}`;
  const parts = [];
  if (lost.length) parts.push(`${listed(lost)} ${lost.length > 1 ? "lose" : "loses"} the points`);
  if (rough.length) parts.push(`${listed(rough)} ${rough.length > 1 ? "fit" : "fits"} roughly`);
  if (good.length) parts.push(`${listed(good)} ${good.length > 1 ? "fit" : "fits"} well`);
  return `${where}: ${parts.join("; ")}.`;
}
