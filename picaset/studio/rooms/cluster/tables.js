// Points from a table: pasted, chosen as a file, or dropped on the board.

import { ask } from "/static/ask.js";
import { settle, tell } from "/static/notice.js";
import { MOST } from "./points.js";

const MOST_BYTES = 900_000;

// `taken` is called with the points that were found, and what is said about them.
export function listenForTables(section, taken) {
  const part = (selector) => section.querySelector(selector);

  // What is wrong with it is told by `fail`; returns whether the points were taken.
  async function takeTable(text, fail) {
    try {
      taken(await ask("/api/cluster/csv", { body: JSON.stringify({ text }) }));
      return true;
    } catch (error) {
      fail(error.message);
      return false;
    }
  }

  async function takeFile(file) {
    if (!file) return;
    if (file.size > MOST_BYTES) {
      tell(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; the page takes at most ${MOST_BYTES / 1e6} MB and ${MOST.toLocaleString("en")} points. Take a sample, or use: picaset cluster FILE`);
      return;
    }
    takeTable(await file.text(), tell);
  }

  const dialog = part("#paste-dialog");
  const problem = part("#paste-problem");
  part("#paste").addEventListener("click", () => {
    problem.textContent = "";
    settle();
    dialog.showModal();
  });
  // It stays open, with what is wrong, until the table can be taken.
  dialog.addEventListener("submit", async (event) => {
    if (event.submitter?.value === "cancel") return;
    event.preventDefault();
    problem.textContent = "";
    if (await takeTable(part("#paste-text").value, (words) => { problem.textContent = words; })) dialog.close();
  });
  part("#file").addEventListener("change", (event) => {
    takeFile(event.target.files[0]);
    event.target.value = "";
  });
  const drop = part(".board");
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("dropping");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("dropping"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("dropping");
    takeFile(event.dataTransfer.files[0]);
  });
}
