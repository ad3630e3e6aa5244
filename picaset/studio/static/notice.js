// A message at the top of the page. It stays until it is closed or some seconds have passed; an error also disappears
// when a later request succeeds.

import { element } from "./element.js";

const container = document.querySelector("#notices");
const SECONDS = { error: 15, info: 5 };

// Only the newest message is shown: several would cover the page. `sticky` errors stay when later requests succeed.
export function showNotice(text, { isError = true, sticky = false } = {}) {
  const close = element("button", { type: "button", textContent: "Close" });
  const notice = element("div", { className: isError ? "notice" : "notice info" }, element("p", { textContent: text }), close);
  notice.dataset.shown = performance.now();
  notice.dataset.clears = isError && !sticky;
  close.addEventListener("click", () => notice.remove());
  container.replaceChildren(notice);
  removeLater(notice, 1000 * SECONDS[isError ? "error" : "info"]);
}

// Removes an error that was shown before a request began that has succeeded.
export function clearErrors(began = performance.now()) {
  const notice = container.firstElementChild;
  if (notice?.dataset.clears === "true" && Number(notice.dataset.shown) < began) notice.remove();
}

// Not while the pointer or the keyboard focus is on it.
function removeLater(notice, milliseconds) {
  setTimeout(() => {
    if (notice.matches(":hover, :focus-within")) removeLater(notice, 2000);
    else notice.remove();
  }, milliseconds);
}
