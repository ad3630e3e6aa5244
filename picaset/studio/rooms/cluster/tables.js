// Points from a table: pasted, chosen as a file, or dropped on the board.

import { ask } from "/static/ask.js";
import { tell } from "/static/notice.js";
import { MOST } from "./points.js";

// `taken` is called with the points that were found, and what is said about them.
export function listenForTables(section, taken) {
  const part = (selector) => section.querySelector(selector);

  async function takeTable(text) {
    try {
      taken(await ask("/api/cluster/csv", { body: JSON.stringify({ text }) }));
    } catch (error) {
      tell(error.message);
    }
  }

  async function takeFile(file) {
    if (!file) return;
    if (file.size > 900_000) {
      tell(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; the page takes at most 0.9 MB and ${MOST} points. Take a sample, or use: picaset cluster FILE`);
      return;
    }
    takeTable(await file.text());
  }

  part("#paste").addEventListener("click", () => part("#paste-dialog").showModal());
  part("#paste-dialog").addEventListener("close", () => {
    if (part("#paste-dialog").returnValue === "take") takeTable(part("#paste-text").value || " ");
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
