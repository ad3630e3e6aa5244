// A message that stays until it is closed, or for some seconds where it only tells.

const place = document.querySelector("#notices");

export function tell(text, { wrong = true } = {}) {
  for (const old of place.children) if (old.dataset.text === text) old.remove();
  const notice = document.createElement("div");
  notice.className = wrong ? "notice" : "notice told";
  notice.dataset.text = text;
  const said = document.createElement("p");
  said.textContent = text;
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => notice.remove());
  notice.append(said, close);
  place.append(notice);
  while (place.children.length > 3) place.firstChild.remove();
  if (!wrong) setTimeout(() => notice.remove(), 5000);
}
