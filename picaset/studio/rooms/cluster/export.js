// What can be taken away: the points with their components, and a picture of all cards.

import { boundsOf } from "./points.js";

const SIDE = 260;
const GAP = 20;
const HEAD = 26;
const FOOT = 24;
const LINE = 20; // of the caption, and the width of one of its letters, generously: fonts differ
const LETTER = 8;

export function csvOf(points, labels) {
  const rows = points.map(([x, y], index) => `${x},${y},${labels[index] + 1}`);
  return `x,y,component\n${rows.join("\n")}\n`;
}

export function svgOf(cards, colours, caption) {
  const columns = Math.min(3, cards.length);
  const rows = Math.ceil(cards.length / columns);
  const width = columns * (SIDE + GAP) + GAP;
  const lines = wrapped(caption, Math.floor((width - 2 * GAP) / LETTER));
  const begin = 24 + lines.length * LINE;
  const height = begin + rows * (HEAD + SIDE + FOOT + GAP);
  const parts = cards.map((card, index) => {
    const left = GAP + (index % columns) * (SIDE + GAP);
    const top = begin + Math.floor(index / columns) * (HEAD + SIDE + FOOT + GAP);
    return `<g transform="translate(${left} ${top})">${panel(card, colours, index)}</g>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
    + `font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="${colours.surface}"/>`
    + `<text font-size="15" fill="${colours.ink}">${lines.map((line, index) => `<tspan x="${GAP}" y="${28 + index * LINE}">${escaped(line)}</tspan>`).join(" ")}</text>`
    + `${parts.join("")}</svg>\n`;
}

// Lines of at most so many letters, broken between words.
function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (longer.length <= most || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function panel({ method, result, points, order }, colours, number) {
  const { left, right, low, high } = boundsOf(points);
  const half = Math.max(right - left, high - low, 0.5) * 0.65;
  const [x, y] = [(left + right) / 2, (low + high) / 2];
  const place = ([u, v]) => [SIDE / 2 + ((u - x) / half) * (SIDE / 2), SIDE / 2 - ((v - y) / half) * (SIDE / 2)].map((value) => value.toFixed(2));
  const colourOf = (index) => colours.components[order[index] % colours.components.length];
  const dots = points.map((point, index) => {
    const [cx, cy] = place(point);
    return `<circle cx="${cx}" cy="${cy}" r="1.8" fill="${colourOf(result.labels[index])}" fill-opacity="0.85"/>`;
  });
  const circles = result.components.map((component, index) => {
    const [cx, cy] = place(component.mean);
    const radius = ((2 * component.deviation) / half) * (SIDE / 2);
    return `<circle cx="${cx}" cy="${cy}" r="${radius.toFixed(2)}" fill="${colourOf(index)}" fill-opacity="0.12" stroke="${colourOf(index)}" stroke-width="2"/>`;
  });
  return `<text y="16" font-size="14" font-weight="600" fill="${colours.ink}">${escaped(method.title)}</text>`
    + `<clipPath id="frame${number}"><rect y="${HEAD}" width="${SIDE}" height="${SIDE}"/></clipPath>`
    + `<rect y="${HEAD}" width="${SIDE}" height="${SIDE}" fill="${colours.sunken}" stroke="${colours.line}"/>`
    + `<g clip-path="url(#frame${number})"><g transform="translate(0 ${HEAD})">${dots.join("")}${circles.join("")}</g></g>`
    + `<text y="${HEAD + SIDE + 18}" font-size="12" fill="${colours.muted}">log-likelihood ${result.log_likelihood.toFixed(3)}, ${result.milliseconds.toFixed(1)} ms</text>`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

export function download(name, text, kind) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
