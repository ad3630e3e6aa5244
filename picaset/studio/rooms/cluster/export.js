// Downloads: the points with their components as CSV, and a picture of all cards as SVG.

import { boundsOf } from "./points.js";
import { axesOf } from "./view.js";

const SIDE = 260;
const GAP = 20;
const HEAD = 26;
const FOOT = 24;
const LINE = 20; // height of a line of the caption
const LETTER = 8; // width of a letter; generous, because fonts differ

export function csvOf(points, labels) {
  const rows = points.map(([x, y], index) => `${x},${y},${labels[index] < 0 ? "noise" : labels[index] + 1}`);
  return `x,y,component\n${rows.join("\n")}\n`;
}

export function svgOf(cards, colours, caption) {
  const columns = Math.min(3, cards.length);
  const rows = Math.ceil(cards.length / columns);
  const width = columns * (SIDE + GAP) + GAP;
  const lines = wrap(caption, Math.floor((width - 2 * GAP) / LETTER));
  const start = 24 + lines.length * LINE;
  const height = start + rows * (HEAD + SIDE + FOOT + GAP);
  const parts = cards.map((card, index) => {
    const left = GAP + (index % columns) * (SIDE + GAP);
    const top = start + Math.floor(index / columns) * (HEAD + SIDE + FOOT + GAP);
    return `<g transform="translate(${left} ${top})">${panel(card, colours, index)}</g>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
    + `font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="${colours.surface}"/>`
    + `<text font-size="15" fill="${colours.ink}">${lines.map((line, index) => `<tspan x="${GAP}" y="${28 + index * LINE}">${escapeXml(line)}</tspan>`).join(" ")}</text>`
    + `${parts.join("")}</svg>\n`;
}

// Breaks a text between words into lines of at most `length` letters.
function wrap(text, length) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (longer.length <= length || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function panel({ method, result, points, order }, colours, number) {
  const { left, right, low, high } = boundsOf(points);
  const half = Math.max(right - left, high - low, 1e-6) * 0.65;
  const [x, y] = [(left + right) / 2, (low + high) / 2];
  const toScreen = ([u, v]) => [SIDE / 2 + ((u - x) / half) * (SIDE / 2), SIDE / 2 - ((v - y) / half) * (SIDE / 2)].map((value) => value.toFixed(2));
  const colourOf = (index) => colours.components[order[index] % colours.components.length];
  const dots = points.map((point, index) => {
    const [cx, cy] = toScreen(point);
    return `<circle cx="${cx}" cy="${cy}" r="1.8" fill="${result.labels[index] < 0 ? colours.muted : colourOf(result.labels[index])}" fill-opacity="0.85"/>`;
  });
  const circles = result.components.map((component, index) => {
    const [cx, cy] = toScreen(component.mean);
    const { along, across, angle } = axesOf(component.covariance);
    const [rx, ry] = [along, across].map((deviation) => ((deviation / half) * SIDE).toFixed(2));
    const turn = `rotate(${((-angle * 180) / Math.PI).toFixed(2)} ${cx} ${cy})`;
    return `<ellipse cx="${cx}" cy="${cy}" rx="${rx}" ry="${ry}" transform="${turn}" fill="${colourOf(index)}" fill-opacity="0.12" stroke="${colourOf(index)}" stroke-width="2"/>`;
  });
  return `<text y="16" font-size="14" font-weight="600" fill="${colours.ink}">${escapeXml(method.title)}</text>`
    + `<clipPath id="frame${number}"><rect y="${HEAD}" width="${SIDE}" height="${SIDE}"/></clipPath>`
    + `<rect y="${HEAD}" width="${SIDE}" height="${SIDE}" fill="${colours.sunken}" stroke="${colours.line}"/>`
    + `<g clip-path="url(#frame${number})"><g transform="translate(0 ${HEAD})">${dots.join("")}${circles.join("")}</g></g>`
    + `<text y="${HEAD + SIDE + 18}" font-size="12" fill="${colours.muted}">log-likelihood ${result.log_likelihood.toFixed(3)}, ${result.milliseconds.toFixed(1)} ms</text>`;
}

function escapeXml(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

export function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
