// The frame: which room is open, in which colours. A room's script is loaded when its door is first opened.

import { settle, tell } from "./notice.js";

const sections = [...document.querySelectorAll("[data-room]")];
const doors = [...document.querySelectorAll("[data-door]")];
let current = ""; // the room whose door was opened last
let entered = null; // its script, once that is there
const failures = new Map(); // how often a script did not come; a browser does not try the same address again

async function open(name) {
  current = name;
  entered?.leave?.();
  entered = null;
  settle(); // what another room told
  for (const section of sections) section.hidden = section.dataset.room !== name;
  for (const door of doors) {
    if (door.dataset.door === name) door.setAttribute("aria-current", "page");
    else door.removeAttribute("aria-current");
  }
  const title = doors.find((door) => door.dataset.door === name).textContent;
  document.title = `${title} · picaset studio`;
  let room;
  try {
    const again = failures.has(name) ? `?again=${failures.get(name)}` : "";
    room = await import(`/rooms/${name}/room.js${again}`); // the browser keeps what it has loaded
  } catch {
    failures.set(name, (failures.get(name) ?? 0) + 1);
    if (current === name) tell(`${title} cannot be opened; is the studio still running in the terminal? If it is, reload the page.`);
    return;
  }
  if (current !== name || entered === room) return; // another door was opened meanwhile, or the same one twice
  entered = room;
  room.enter?.();
}

function fromAddress() {
  const name = location.hash.slice(1);
  return sections.some((section) => section.dataset.room === name) ? name : sections[0]?.dataset.room;
}

function remembered() {
  try {
    return localStorage.getItem("picaset-theme") ?? "auto";
  } catch {
    return "auto"; // storage may be switched off
  }
}

function colour(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("picaset-theme", theme);
  } catch {
    // then it holds for this page alone
  }
  document.dispatchEvent(new Event("colours"));
}

const choice = document.querySelector("#theme");
choice.value = remembered();
colour(choice.value);
choice.addEventListener("change", () => colour(choice.value));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("colours")));

addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  open(fromAddress());
});
if (sections.length) open(fromAddress());
