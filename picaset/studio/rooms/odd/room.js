// The room: faces that are swapped, added and removed, and what each network says of every one of them.

import { ask, Newest } from "/static/ask.js";
import { element, write } from "/static/element.js";
import { tell } from "/static/notice.js";
import { inWords, Tile } from "./tiles.js";

const section = document.querySelector("#room-odd");
const part = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
const LEAST = 3;
const MOST = 64;
let seed = 1; // the generalized cascade finds the odd face of the first set
let gesture = 0;
let pair = [];
let tiles = [];
let models = [];
let sources = [];

const source = () => part("#odd-source").value;

// One set is asked for at a time; the newest wish is next.
const sets = new Newest({
  send: (address, signal) => ask(address, { signal }),
  show: (found) => {
    pair = found.pair;
    tiles = found.faces.map(makeTile);
    part("#odd-faces").replaceChildren(...tiles.map((tile) => tile.element));
    changed();
  },
  fail: (error) => tell(error.message),
});

function wantSet() {
  const size = part("#odd-size").value;
  const chosen = ["first", "second"].filter((name) => part(`#odd-${name}`).value)
    .map((name) => `&${name}=${encodeURIComponent(part(`#odd-${name}`).value)}`).join("");
  sets.want(`/api/odd/set?source=${source()}&size=${size}&seed=${seed}${chosen}`);
}

function makeTile(face) {
  return new Tile(face, source(), models, { swap, remove });
}

// The set is another one: every network is asked again.
function changed() {
  gesture += 1;
  tiles.forEach((tile, index) => {
    tile.number(index);
    tile.remove.disabled = tiles.length <= LEAST;
    tile.reveal(pair, part("#odd-reveal").checked);
    tile.wait();
  });
  part("#odd-size").value = tiles.length;
  write(part("#odd-size-shown"), String(tiles.length));
  for (const button of section.querySelectorAll("[data-add]")) button.disabled = tiles.length >= MOST;
  const question = { gesture, faces: tiles.map((tile) => tile.face.number), shown: tiles, source: source() };
  for (const model of models) model.newest.want(question);
  judge();
}

async function another(kind) {
  seed += 1;
  const but = tiles.map((tile) => `&but=${tile.face.number}`).join("");
  const [first, second] = pair.map(encodeURIComponent);
  return ask(`/api/odd/another?source=${source()}&kind=${kind}&first=${first}&second=${second}&seed=${seed}${but}`);
}

// For a face of the same kind, so that the question stays the same.
async function swap(tile) {
  const kind = { 0: "odd", 1: "any", 2: "fits" }[tile.shares(pair)];
  await change(async () => {
    const made = makeTile(await another(kind));
    if (!tiles.includes(tile)) return; // a new set came in between
    tiles = tiles.map((one) => (one === tile ? made : one));
    tile.element.replaceWith(made.element);
    made.swap.focus();
  });
}

async function add(kind) {
  await change(async () => {
    const made = makeTile(await another(kind));
    if (tiles.length >= MOST) return;
    tiles = [...tiles, made];
    part("#odd-faces").append(made.element);
  });
}

function remove(tile) {
  const place = tiles.indexOf(tile);
  if (place < 0 || tiles.length <= LEAST) return;
  tiles = tiles.filter((one) => one !== tile);
  tile.element.remove();
  changed();
  const near = tiles[Math.min(place, tiles.length - 1)];
  (near.remove.disabled ? near.swap : near.remove).focus();
}

async function change(step) {
  try {
    await step();
    changed();
  } catch (error) {
    tell(error.message);
  }
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
    show: (result, { shown }) => {
      if (result.gesture !== gesture) return; // of a set that has changed since; its answer comes next
      const top = result.scores.indexOf(Math.max(...result.scores));
      result.scores.forEach((value, place) => shown[place].show(index, value, place === top));
      made.result = { gesture: result.gesture, top: shown[top], score: result.scores[top] };
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

async function offerAttributes() {
  const { names } = await ask(`/api/odd/attributes?source=${source()}`);
  for (const select of [part("#odd-first"), part("#odd-second")]) {
    select.replaceChildren(new Option("any attribute", ""), ...names.map((name) => new Option(inWords(name), name)));
  }
  write(part("#odd-about"), sources.find((one) => one.name === source()).about);
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
  part("#odd-source").addEventListener("change", async () => {
    write(part("#odd-verdict"), "Reading the faces …"); // the first time, photographs are decoded
    try {
      await offerAttributes();
      wantSet();
    } catch (error) {
      tell(error.message);
    }
  });
  for (const button of section.querySelectorAll("[data-add]")) {
    button.addEventListener("click", () => add(button.dataset.add));
  }
}

async function begin() {
  listen();
  try {
    const known = await ask("/api/odd/known");
    sources = known.sources;
    part("#odd-source").append(...sources.map(({ name, title }) => new Option(title, name)));
    part("#odd-source").disabled = sources.length < 2;
    models = known.models.map(makeModel);
    await offerAttributes();
    wantSet();
  } catch (error) {
    tell(error.message);
  }
}

begin();
