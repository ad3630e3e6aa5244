// Reads points from a table that is pasted, opened as a file, or dropped on the board.

import { fetchJson } from "/static/request.js";
import { clearErrors, showNotice } from "/static/notice.js";
import { MAX_POINTS } from "./points.js";

const MAX_BYTES = 900_000;

// `load` is called with the points and a sentence about them.
export function listenForTables(section, load) {
  const find = (selector) => section.querySelector(selector);

  // `fail` is called with the error message; returns whether the table was read.
  async function readTable(text, fail) {
    try {
      load(await fetchJson("/api/cluster/csv", { body: JSON.stringify({ text }) }));
      return true;
    } catch (error) {
      fail(error.message);
      return false;
    }
  }

  async function readFile(file) {
    if (!file) return;
    if (file.size > MAX_BYTES) {
      showNotice(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; the page accepts at most ${MAX_BYTES / 1e6} MB and ${MAX_POINTS.toLocaleString("en")} points. Use a sample, or run: picaset cluster FILE`);
      return;
    }
    readTable(await file.text(), showNotice);
  }

  const dialog = find("#paste-dialog");
  const problem = find("#paste-problem");
  find("#paste").addEventListener("click", () => {
    problem.textContent = "";
    clearErrors();
    dialog.showModal();
  });
  // The dialog stays open, with the error, until the table can be read.
  dialog.addEventListener("submit", async (event) => {
    if (event.submitter?.value === "cancel") return;
    event.preventDefault();
    problem.textContent = "";
    if (await readTable(find("#paste-text").value, (message) => { problem.textContent = message; })) dialog.close();
  });
  find("#file").addEventListener("change", (event) => {
    readFile(event.target.files[0]);
    event.target.value = "";
  });
  const drop = find(".board");
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("dropping");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("dropping"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("dropping");
    readFile(event.dataTransfer.files[0]);
  });
}
