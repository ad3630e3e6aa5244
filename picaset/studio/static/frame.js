// The frame: which room is open, in which colours. A room's script is loaded when its door is first opened.

const sections = [...document.querySelectorAll("[data-room]")];
const doors = [...document.querySelectorAll("[data-door]")];
const rooms = new Map();

async function open(name) {
  for (const section of sections) section.hidden = section.dataset.room !== name;
  for (const door of doors) {
    if (door.dataset.door === name) door.setAttribute("aria-current", "page");
    else door.removeAttribute("aria-current");
  }
  const title = doors.find((door) => door.dataset.door === name).textContent;
  document.title = `${title} · picaset studio`;
  if (!rooms.has(name)) rooms.set(name, import(`/rooms/${name}/room.js`));
  const opened = await rooms.get(name);
  opened.enter?.();
  for (const [other, room] of rooms) if (other !== name) (await room).leave?.();
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
