// The frame of the page: opens rooms and sets the theme. The script of a room is loaded when it is first opened.

import { clearErrors, showNotice } from "./notice.js";

const sections = [...document.querySelectorAll("[data-room]")];
const links = [...document.querySelectorAll("[data-link]")];
let current = ""; // the room that was opened last
let active = null; // its script, once loaded
const failures = new Map(); // failed loads per room; a browser does not request the same module address again

async function open(name) {
  current = name;
  active?.leave?.();
  active = null;
  clearErrors(); // of the previous room
  for (const section of sections) section.hidden = section.dataset.room !== name;
  for (const link of links) {
    if (link.dataset.link === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = links.find((link) => link.dataset.link === name).textContent;
  document.title = `${title} · picaset studio`;
  let room;
  try {
    const retry = failures.has(name) ? `?retry=${failures.get(name)}` : "";
    room = await import(`/rooms/${name}/room.js${retry}`); // loaded once; later imports return the same module
  } catch {
    failures.set(name, (failures.get(name) ?? 0) + 1);
    if (current === name) showNotice(`${title} cannot be opened; is the studio still running in the terminal? If it is, reload the page.`);
    return;
  }
  if (current !== name || active === room) return; // another room, or the same one again, was opened meanwhile
  active = room;
  room.enter?.();
}

function roomInAddress() {
  const name = location.hash.slice(1);
  return sections.some((section) => section.dataset.room === name) ? name : sections[0]?.dataset.room;
}

function savedTheme() {
  try {
    return localStorage.getItem("picaset-theme") ?? "auto";
  } catch {
    return "auto"; // storage may be disabled
  }
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("picaset-theme", theme);
  } catch {
    // the theme then lasts until the page is closed
  }
  document.dispatchEvent(new Event("colours"));
}

const themeSelect = document.querySelector("#theme");
themeSelect.value = savedTheme();
setTheme(themeSelect.value);
themeSelect.addEventListener("change", () => setTheme(themeSelect.value));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("colours")));

addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  open(roomInAddress());
});
if (sections.length) open(roomInAddress());
