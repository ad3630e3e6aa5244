// The room of faces: a guess by the visitor, then the score of every face by each network; sets can be changed face by face.

import { fetchJson, LatestRequest } from "/static/request.js";
import { element, fillSelect, setText } from "/static/element.js";
import { showNotice } from "/static/notice.js";
import { formatAttribute, Tile } from "./tiles.js";

const section = document.querySelector("#room-odd");
const find = (selector) => section.querySelector(selector);
const page = crypto.randomUUID();
let options = null;
let seed = 1; // a set whose odd face the first network finds
let gesture = 0;
let current = null; // the chosen source and its attributes
let shown = null; // the query of the set that is shown
let pair = [];
let tiles = [];
let models = [];
let changes = Promise.resolve();
let guessed = null; // the round of the set that is shown: the tile that was clicked, and who was right
const rounds = [];

const sets = new LatestRequest({
  send: ({ source, size, first, second, number }, request) => {
    const parameters = { source, size, seed: number, ...(first && { first }), ...(second && { second }) };
    return fetchJson(`/api/odd/set?${new URLSearchParams(parameters)}`, request);
  },
  show: (faceSet, query) => {
    shown = query;
    pair = faceSet.pair;
    guessed = null;
    find("#odd-reveal").checked = false;
    tiles = faceSet.faces.map(makeTile);
    find("#odd-faces").replaceChildren(...tiles.map((tile) => tile.element));
    changed();
  },
  fail: (error, query) => {
    if (sets.next === null) restore(error, { isSource: find("#odd-source").value === query.source });
  },
});

function requestSet() {
  if (current === null) { // loading the source has failed
    loadSource();
    return;
  }
  const [first, second] = ["first", "second"].map((name) => find(`#odd-${name}`).value);
  sets.submit({ ...current, size: find("#odd-size").value, first, second, number: seed });
}

// After an error the set stays as it was; sets the controls back accordingly.
function restore(error, { isSource = true } = {}) {
  showNotice(error.message);
  setText(find("#odd-verdict"), shown ? "The set has not changed." : error.message);
  if (shown === null) return;
  if (!isSource) return; // another source is being loaded
  find("#odd-source").value = shown.source;
  listAttributes(shown);
  find("#odd-first").value = shown.first;
  find("#odd-second").value = shown.second;
  showSize();
  summarize();
}

function makeTile(face) {
  return new Tile(face, shown.source, models, { guess, swap, remove });
}

// Ends the round: a guess counts if exactly one face is odd.
function guess(tile) {
  const counts = countFaces(0) === 1;
  guessed = { gesture, tile, isCorrect: tile.countShared(pair) === 0, networks: new Map() };
  if (counts) rounds.push(guessed);
  find("#odd-reveal").checked = true;
  reveal();
}

// Shows or hides the solution and the predictions.
function reveal() {
  const isRevealed = find("#odd-reveal").checked;
  section.classList.toggle("guessing", !isRevealed);
  for (const tile of tiles) tile.reveal(pair, isRevealed, tile === guessed?.tile);
  summarize();
}

function showSize() {
  find("#odd-size").value = tiles.length;
  setText(find("#odd-size-shown"), String(tiles.length));
}

// The set has changed: requests the scores of all networks.
function changed() {
  gesture += 1;
  tiles.forEach((tile, index) => {
    tile.setNumber(index);
    tile.remove.disabled = tiles.length <= options.smallest;
    tile.wait();
  });
  showSize();
  const isFull = tiles.length >= options.largest;
  const reason = isFull ? `A set has at most ${options.largest} faces; remove one to add another.` : "";
  for (const button of section.querySelectorAll("[data-add]")) Object.assign(button, { disabled: isFull, title: reason });
  setText(find("#odd-full"), reason);
  const query = { gesture, faces: tiles.map((tile) => tile.face.number), tiles, source: shown.source };
  for (const model of models) model.latest.submit(query);
  reveal();
}

// Requests one more face and passes its tile to `insert`. Requests run one after the other, so that no face comes twice;
// a face for a set that was replaced meanwhile is dropped.
function requestFace(kind, insert) {
  const before = shown;
  changes = changes.then(async () => {
    if (shown === null || shown !== before) return;
    seed += 1;
    const parameters = new URLSearchParams({ source: shown.source, kind, first: pair[0], second: pair[1], seed });
    for (const tile of tiles) parameters.append("exclude", tile.face.number);
    try {
      const face = await fetchJson(`/api/odd/another?${parameters}`);
      if (shown !== before) return;
      insert(makeTile(face));
      changed();
    } catch (error) {
      showNotice(error.message);
    }
  });
}

// Replaces a face with one of the same kind, so that the solution stays the same.
function swap(tile) {
  requestFace({ 0: "odd", 1: "any", 2: "fits" }[tile.countShared(pair)], (replacement) => {
    if (!tiles.includes(tile)) return; // it was removed meanwhile
    tiles = tiles.map((other) => (other === tile ? replacement : other));
    tile.element.replaceWith(replacement.element);
    replacement.swap.focus();
  });
}

function add(kind) {
  requestFace(kind, (tile) => {
    if (tiles.length >= options.largest) return;
    tiles = [...tiles, tile];
    find("#odd-faces").append(tile.element);
  });
}

function remove(tile) {
  const index = tiles.indexOf(tile);
  if (index < 0 || tiles.length <= options.smallest) return;
  tiles = tiles.filter((other) => other !== tile);
  tile.element.remove();
  changed();
  const near = tiles[Math.min(index, tiles.length - 1)];
  (near.remove.disabled ? near.swap : near.remove).focus();
}

function makeModel(model, index) {
  const score = element("p", { className: "score number", textContent: "waiting" });
  const time = element("p", { className: "hint number" });
  const card = element("article", { className: "panel model", data: { model: String(index), name: model.name } },
    element("h3", { textContent: model.title }), element("p", { className: "hint", textContent: model.about }), score, time);
  find("#odd-models").append(card);
  const entry = { ...model, result: null, score, time };
  entry.latest = new LatestRequest({
    send: ({ gesture: number, faces, source }, request) => fetchJson("/api/odd/scores", {
      body: JSON.stringify({ model: model.name, source, faces, page, gesture: number }), ...request,
    }),
    show: (result, { tiles: scored }) => {
      if (result.gesture !== gesture) return; // the set has changed since; the next result is on its way
      const top = result.scores.indexOf(Math.max(...result.scores));
      result.scores.forEach((value, place) => scored[place].show(index, value, place === top));
      entry.result = { gesture: result.gesture, top: scored[top], score: result.scores[top] };
      setText(time, `${result.milliseconds.toFixed(0)} ms`);
      summarize();
    },
    fail: (error) => {
      entry.result = null;
      setText(score, error.message);
    },
  });
  return entry;
}

const countFaces = (numShared) => tiles.filter((tile) => tile.countShared(pair) === numShared).length;

// Describes the solution of the set that is shown, which may have been edited.
function describeSolution(odd) {
  const both = pair.map(formatAttribute).join(" and ");
  if (odd === 0) return `No face is odd: each has ${pair.map(formatAttribute).join(" or ")}.`;
  if (odd === 1 && countFaces(2) === tiles.length - 1) return `All but the odd one have ${both}.`;
  return `${countFaces(2)} of ${tiles.length} faces have ${both}; ${odd} ${odd === 1 ? "has" : "have"} neither.`;
}

// Asks for a guess or, once revealed, names the solution and the face that each network predicts.
function summarize() {
  showScore();
  if (!find("#odd-reveal").checked) {
    setText(find("#odd-verdict"), "Which face does not belong? Click it.");
    return;
  }
  const odd = countFaces(0);
  const parts = [describeGuess(), describeSolution(odd)];
  for (const { title, result, score } of models) {
    if (result === null || result.gesture !== gesture) continue;
    const face = `face ${tiles.indexOf(result.top) + 1}`;
    const isCorrect = result.top.countShared(pair) === 0;
    const outcome = !odd ? "" : isCorrect ? " ✓ correct" : " ✗ wrong";
    setText(score, `Prediction: ${face}, probability ${result.score.toFixed(2)}${outcome}`);
    parts.push(`${title} predicts ${face}${outcome && `,${outcome}`}.`);
    if (guessed?.gesture === gesture) guessed.networks.set(title, isCorrect);
  }
  setText(find("#odd-verdict"), parts.filter(Boolean).join(" "));
  showScore();
}

function describeGuess() {
  if (!tiles.includes(guessed?.tile)) return "";
  const face = `You chose face ${tiles.indexOf(guessed.tile) + 1}`;
  if (!rounds.includes(guessed)) return `${face}; the guess does not count, because this set does not have exactly one odd face.`;
  return `${face}: ${guessed.isCorrect ? "✓ correct" : "✗ wrong"}.`;
}

// Shows how many of the guessed sets the visitor and each network got right.
function showScore() {
  const right = (isCorrect) => rounds.filter(isCorrect).length;
  const scores = [["you", right((round) => round.isCorrect)],
    ...models.map(({ title }) => [title, right((round) => round.networks.get(title))])];
  setText(find("#odd-score"), rounds.length
    ? `Correct of ${rounds.length} guessed: ${scores.map(([name, count]) => `${name} ${count}`).join(", ")}`
    : "");
}

function listAttributes({ source, names }) {
  current = { source, names };
  const choices = [{ name: "", title: "any attribute" }, ...names.map((name) => ({ name, title: formatAttribute(name) }))];
  fillSelect(find("#odd-first"), choices);
  fillSelect(find("#odd-second"), choices);
  setText(find("#odd-about"), options.sources.find(({ name }) => name === source).about);
}

// Loads the attributes of a source, then a set of its faces. The first time, photographs are decoded.
async function loadSource() {
  const source = find("#odd-source").value;
  setText(find("#odd-verdict"), "Loading the faces …");
  try {
    const { names } = await fetchJson(`/api/odd/attributes?source=${source}`);
    if (find("#odd-source").value !== source) return; // another one was chosen meanwhile
    listAttributes({ source, names });
    requestSet();
  } catch (error) {
    if (find("#odd-source").value === source) restore(error);
  }
}

function listen() {
  find("#odd-new").addEventListener("click", () => {
    seed += 1;
    requestSet();
  });
  find("#odd-reveal").addEventListener("change", reveal);
  find("#odd-size").addEventListener("input", () => {
    setText(find("#odd-size-shown"), find("#odd-size").value);
    requestSet();
  });
  for (const select of [find("#odd-first"), find("#odd-second")]) select.addEventListener("change", requestSet);
  find("#odd-source").addEventListener("change", loadSource);
  for (const button of section.querySelectorAll("[data-add]")) {
    button.addEventListener("click", () => add(button.dataset.add));
  }
}

async function start() {
  try {
    options = await fetchJson("/api/odd/options");
    Object.assign(find("#odd-size"), { min: options.smallest, max: options.largest });
    fillSelect(find("#odd-source"), options.sources);
    models = options.models.map(makeModel);
    listen();
    await loadSource();
  } catch (error) {
    showNotice(error.message);
  }
}

start();
