// A message that stays until it is closed, for some seconds, or, if something was wrong, until something succeeds.

const place = document.querySelector("#notices");
const SECONDS = { wrong: 15, told: 5 };

// There is one at a time, the newest: older ones would cover what is shown. A limit that was met `stays` though the rest
// goes on.
export function tell(text, { wrong = true, stays = false } = {}) {
  const notice = document.createElement("div");
  notice.className = wrong ? "notice" : "notice told";
  notice.dataset.told = performance.now();
  notice.dataset.settles = wrong && !stays;
  const said = document.createElement("p");
  said.textContent = text;
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => notice.remove());
  notice.append(said, close);
  place.replaceChildren(notice);
  leaveLater(notice, 1000 * SECONDS[wrong ? "wrong" : "told"]);
}

// Something that began since has succeeded: what was wrong is over.
export function settle(began = performance.now()) {
  const notice = place.firstElementChild;
  if (notice?.dataset.settles === "true" && Number(notice.dataset.told) < began) notice.remove();
}

// Not while somebody points at it or has reached it by keyboard.
function leaveLater(notice, milliseconds) {
  setTimeout(() => {
    if (notice.matches(":hover, :focus-within")) leaveLater(notice, 2000);
    else notice.remove();
  }, milliseconds);
}
