// The room: faces that are swapped, added and removed, and what each network says of every one of them.

import { ask, Newest } from "/static/ask.js";
import { element, offer, write } from "/static/element.js";
import { tell } from "/static/notice.js";
import { inWords, Tile } from "./tiles.js";

const section = document.querySelector("#room-odd");
const part = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
let known = null;
let seed = 1; // the generalized cascade finds the odd face of the first set
let gesture = 0;
let offered = null; // a source and its attributes, as they can be chosen
let shown = null; // the wish that the set answers
let pair = [];
let tiles = [];
let models = [];
let changes = Promise.resolve();

// One set is asked for at a time; the newest wish is next.
const sets = new Newest({
  send: ({ source, size, first, second, number }, signal) => {
    const asked = { source, size, seed: number, ...(first && { first }), ...(second && { second }) };
    return ask(`/api/odd/set?${new URLSearchParams(asked)}`, { signal });
  },
  show: (found, wish) => {
    shown = wish;
    pair = found.pair;
    tiles = found.faces.map(makeTile);
    part("#odd-faces").replaceChildren(...tiles.map((tile) => tile.element));
    changed();
  },
  fail: (error, wish) => {
    if (sets.next === null) restore(error, { isSource: part("#odd-source").value === wish.source });
  },
});

function wantSet() {
  if (offered === null) { // what there is to choose could not be read
    takeSource();
    return;
  }
  const [first, second] = ["first", "second"].map((name) => part(`#odd-${name}`).value);
  sets.want({ ...offered, size: part("#odd-size").value, first, second, number: seed });
}

// What cannot be done leaves the set as it was, and so everything that says how it is.
function restore(error, { isSource = true } = {}) {
  tell(error.message);
  write(part("#odd-verdict"), shown ? "The set stays as it was." : error.message);
  if (shown === null) return;
  if (!isSource) return; // another source is being read
  part("#odd-source").value = shown.source;
  offerAttributes(shown);
  part("#odd-first").value = shown.first;
  part("#odd-second").value = shown.second;
  tellSize();
  judge();
}

function makeTile(face) {
  return new Tile(face, shown.source, models, { swap, remove });
}

function tellSize() {
  part("#odd-size").value = tiles.length;
  write(part("#odd-size-shown"), String(tiles.length));
}

// The set is another one: every network is asked again.
function changed() {
  gesture += 1;
  tiles.forEach((tile, index) => {
    tile.number(index);
    tile.remove.disabled = tiles.length <= known.smallest;
    tile.reveal(pair, part("#odd-reveal").checked);
    tile.wait();
  });
  tellSize();
  const isFull = tiles.length >= known.largest;
  const why = isFull ? `A set has at most ${known.largest} faces; remove one to add another.` : "";
  for (const button of section.querySelectorAll("[data-add]")) Object.assign(button, { disabled: isFull, title: why });
  write(part("#odd-full"), why);
  const question = { gesture, faces: tiles.map((tile) => tile.face.number), tiles, source: shown.source };
  for (const model of models) model.newest.want(question);
  judge();
}

// One more face for the set that is shown now. One comes after the other, so that none comes twice; none comes to a set
// that was replaced in between.
function bring(kind, place) {
  const before = shown;
  changes = changes.then(async () => {
    if (shown === null || shown !== before) return;
    seed += 1;
    const asked = new URLSearchParams({ source: shown.source, kind, first: pair[0], second: pair[1], seed });
    for (const tile of tiles) asked.append("but", tile.face.number);
    try {
      const face = await ask(`/api/odd/another?${asked}`);
      if (shown !== before) return;
      place(makeTile(face));
      changed();
    } catch (error) {
      tell(error.message);
    }
  });
}

// For a face of the same kind, so that the question stays the same.
function swap(tile) {
  bring({ 0: "odd", 1: "any", 2: "fits" }[tile.shares(pair)], (made) => {
    if (!tiles.includes(tile)) return; // it was removed in between
    tiles = tiles.map((one) => (one === tile ? made : one));
    tile.element.replaceWith(made.element);
    made.swap.focus();
  });
}

function add(kind) {
  bring(kind, (made) => {
    if (tiles.length >= known.largest) return;
    tiles = [...tiles, made];
    part("#odd-faces").append(made.element);
  });
}

function remove(tile) {
  const place = tiles.indexOf(tile);
  if (place < 0 || tiles.length <= known.smallest) return;
  tiles = tiles.filter((one) => one !== tile);
  tile.element.remove();
  changed();
  const near = tiles[Math.min(place, tiles.length - 1)];
  (near.remove.disabled ? near.swap : near.remove).focus();
}

function makeModel(model, index) {
  const score = element("p", { className: "score number", textContent: "waiting" });
  const time = element("p", { className: "hint number" });
  const card = element("article", { className: "panel model", data: { model: String(index), name: model.name } },
    element("h3", { textContent: model.title }), element("p", { className: "hint", textContent: model.about }), score, time);
  part("#odd-models").append(card);
  const made = { ...model, result: null, score, time };
  made.newest = new Newest({
    send: ({ gesture: number, faces, source: from }, signal) => ask("/api/odd/scores", {
      body: JSON.stringify({ model: model.name, source: from, faces, page, gesture: number }), signal,
    }),
    show: (result, { tiles: asked }) => {
      if (result.gesture !== gesture) return; // of a set that has changed since; its answer comes next
      const top = result.scores.indexOf(Math.max(...result.scores));
      result.scores.forEach((value, place) => asked[place].show(index, value, place === top));
      made.result = { gesture: result.gesture, top: asked[top], score: result.scores[top] };
      write(time, `${result.milliseconds.toFixed(0)} ms`);
      judge();
    },
    fail: (error) => {
      made.result = null;
      write(score, error.message);
    },
  });
  return made;
}

// Faces that have so many of the two attributes.
const count = (shares) => tiles.filter((tile) => tile.shares(pair) === shares).length;

// What is true of the faces that are shown, whatever was added or taken away.
function inAll(odd) {
  const both = pair.map(inWords).join(" and ");
  if (odd === 0) return `No face is odd now: each has ${pair.map(inWords).join(" or ")}.`;
  if (odd === 1 && count(2) === tiles.length - 1) return `All but the odd one have ${both}.`;
  return `${count(2)} of ${tiles.length} faces have ${both}; ${odd} ${odd === 1 ? "has" : "have"} neither.`;
}

// What each network takes for the odd one, and whether it is.
function judge() {
  const isShown = part("#odd-reveal").checked;
  const odd = count(0);
  const parts = [];
  for (const { title, result, score } of models) {
    if (result === null || result.gesture !== gesture) continue;
    const face = `face ${tiles.indexOf(result.top) + 1}`;
    const right = !isShown || !odd ? "" : result.top.shares(pair) === 0 ? " ✓ right" : " ✗ wrong";
    write(score, `Suspects ${face}, ${result.score.toFixed(2)}${right}`);
    parts.push(`${title} suspects ${face}${right && `,${right}`}`);
  }
  const truth = isShown ? `${inAll(odd)} ` : "";
  if (parts.length) write(part("#odd-verdict"), `${truth}${parts.join("; ")}.`);
}

function offerAttributes({ source, names }) {
  offered = { source, names };
  const choices = [{ name: "", title: "any attribute" }, ...names.map((name) => ({ name, title: inWords(name) }))];
  offer(part("#odd-first"), choices);
  offer(part("#odd-second"), choices);
  write(part("#odd-about"), known.sources.find((one) => one.name === source).about);
}

// Another source: its attributes, and then a set of its faces. The first time, photographs are decoded.
async function takeSource() {
  const source = part("#odd-source").value;
  write(part("#odd-verdict"), "Reading the faces …");
  try {
    const { names } = await ask(`/api/odd/attributes?source=${source}`);
    if (part("#odd-source").value !== source) return; // yet another one was chosen meanwhile
    offerAttributes({ source, names });
    wantSet();
  } catch (error) {
    if (part("#odd-source").value === source) restore(error);
  }
}

function listen() {
  part("#odd-new").addEventListener("click", () => {
    seed += 1;
    part("#odd-reveal").checked = false;
    wantSet();
  });
  part("#odd-reveal").addEventListener("change", () => {
    for (const tile of tiles) tile.reveal(pair, part("#odd-reveal").checked);
    judge();
  });
  part("#odd-size").addEventListener("input", () => {
    write(part("#odd-size-shown"), part("#odd-size").value);
    wantSet();
  });
  for (const select of [part("#odd-first"), part("#odd-second")]) select.addEventListener("change", wantSet);
  part("#odd-source").addEventListener("change", takeSource);
  for (const button of section.querySelectorAll("[data-add]")) {
    button.addEventListener("click", () => add(button.dataset.add));
  }
}

async function begin() {
  try {
    known = await ask("/api/odd/known");
    Object.assign(part("#odd-size"), { min: known.smallest, max: known.largest });
    offer(part("#odd-source"), known.sources);
    models = known.models.map(makeModel);
    listen();
    await takeSource();
  } catch (error) {
    tell(error.message);
  }
}

begin();
