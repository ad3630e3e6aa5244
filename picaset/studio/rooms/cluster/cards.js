// The card of a method: points coloured by component, ellipses of the components, log-likelihood and computing time.

import { formatTime, joinNames } from "/static/element.js";
import { boundsOf } from "./points.js";
import { View } from "./view.js";

const GOOD = 0.3; // largest gap to the best log-likelihood, in nats per point
const ROUGH = 1.5;

export class Card {
  constructor(method, { colours, matching }) {
    Object.assign(this, { method, colours, matching });
    this.element = document.createElement("article");
    this.element.className = "card";
    this.element.dataset.method = method.name;
    this.element.innerHTML = `<h3></h3><p class="hint"></p><div class="picture"><canvas role="img"></canvas><p class="outside"></p></div>
<div class="measures"><span><span class="likelihood">–</span> <span class="unit">log-likelihood</span></span><span class="time"></span></div><span class="badge">waiting</span>`;
    this.find("h3").textContent = method.title;
    this.find("canvas").setAttribute("aria-label", `${method.title}: no result yet`);
    const fixed = method.fixed_components ? ` Always ${method.fixed_components} components.` : "";
    this.find(".hint").textContent = method.about + fixed;
    this.find(".likelihood").title = "Mean log-likelihood per point; higher is better";
    this.result = null;
    this.problem = ""; // reason why there is no result
    this.points = [];
    this.view = new View(this.find("canvas"), () => this.draw());
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  show(result, points) {
    this.result = result;
    this.problem = "";
    this.points = points;
    this.element.classList.remove("stale");
    this.find(".likelihood").textContent = formatLikelihood(result.log_likelihood);
    this.find(".time").textContent = formatTime(result.milliseconds);
    this.draw();
  }

  // A result is on its way: the reason why there was none no longer holds.
  wait() {
    this.problem = "";
    this.find(".outside").textContent = "";
    const badge = this.find(".badge");
    badge.className = "badge";
    badge.textContent = "waiting";
  }

  fail(message) {
    this.result = null;
    this.problem = message;
    this.find(".likelihood").textContent = "–";
    this.find(".time").textContent = "";
    this.find(".outside").textContent = message;
    this.find("canvas").setAttribute("aria-label", `${this.method.title}: ${message}`);
    this.compare(null);
    this.view.clear();
  }

  // Compares with the best mixture of the same points that is known, whether a card shows it or not.
  compare(best) {
    const badge = this.find(".badge");
    const below = this.result === null || best === null ? null : best - this.result.log_likelihood;
    if (below === null && badge.textContent === "waiting" && !this.find(".outside").textContent) return;
    this.verdict = below === null ? "" : below <= GOOD ? "good" : below <= ROUGH ? "fair" : "bad";
    const text = {
      "": "no result", good: "✓ good fit", fair: `~ rough fit, ${formatGap(below)} below the best`,
      bad: `✗ poor fit, ${formatGap(below)} below the best`,
    }[this.verdict];
    if (badge.textContent === text) return;
    badge.className = `badge ${this.verdict}`;
    badge.textContent = text;
  }

  // Draws again if the matching of colours has changed.
  recolour() {
    if (this.result !== null && String(this.matching.colours(this.result.components)) !== String(this.order)) this.draw();
  }

  draw() {
    const { view, result } = this;
    const colours = this.colours();
    view.clear();
    if (result === null) return;
    const bounds = boundsOf(this.points);
    view.frame(pad(bounds));
    view.drawTrainingSquare(colours);
    this.order = this.matching.colours(result.components);
    const colourOf = (index) => colours.components[this.order[index] % colours.components.length];
    view.drawPoints(this.points, { colour: (index) => (result.labels[index] < 0 ? colours.muted : colourOf(result.labels[index])), size: view.width < 220 ? 1.5 : 2 });
    const outside = view.drawComponents(result.components, colourOf, colours);
    this.find(".outside").textContent = outside
      ? `${outside} of ${result.components.length} components out of view` : "";
    const summary = `${this.method.title}: ${result.components.length} components, log-likelihood ${formatLikelihood(result.log_likelihood)}`;
    this.find("canvas").setAttribute("aria-label", outside ? `${summary}, ${outside} of them out of view` : summary);
  }
}

const LONGEST = 1e6; // larger numbers would not fit into a card

export function formatLikelihood(likelihood) {
  if (likelihood <= -LONGEST) return `−${(-likelihood).toExponential(1)}`;
  return likelihood.toFixed(likelihood < -100 ? 0 : 2).replace("-", "−");
}

function formatGap(difference) {
  if (difference === null) return "";
  if (difference >= LONGEST) return difference.toExponential(1);
  return difference >= 100 ? String(Math.round(difference)) : difference.toFixed(1);
}

function pad({ left, right, low, high }) {
  const more = 0.15 * Math.max(right - left, high - low, 1e-6);
  return { left: left - more, right: right + more, low: low - more, high: high + more };
}

// Summarizes all cards in one sentence.
export function verdictOf(cards, shift) {
  const judged = cards.filter((card) => card.result !== null);
  if (!judged.length) return "";
  const named = (verdict) => judged.filter((card) => card.verdict === verdict).map((card) => card.method.title);
  const [good, rough, poor] = [named("good"), named("fair"), named("bad")];
  const where = shift === 0 ? "Points not shifted" : `Points shifted by ${shift > 0 ? "+" : "−"}${Math.abs(shift)}`;
  const parts = [];
  if (poor.length) parts.push(`${joinNames(poor)} ${poor.length > 1 ? "fit" : "fits"} poorly`);
  if (rough.length) parts.push(`${joinNames(rough)} ${rough.length > 1 ? "fit" : "fits"} roughly`);
  if (good.length) parts.push(`${joinNames(good)} ${good.length > 1 ? "fit" : "fits"} well`);
  return `${where}: ${parts.join("; ")}.`;
}
