// An element with its class, its properties and what is in it, in one call.

export function element(tag, { className = "", data = {}, attributes = {}, ...properties } = {}, ...inside) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  Object.assign(made.dataset, data);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  Object.assign(made, properties);
  made.append(...inside);
  return made;
}

// The same for what is drawn in an SVG.
export function shape(tag, attributes = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

// Writing what is there already would still cost a layout, and a screen reader would say it again.
export function write(place, words) {
  if (place.textContent !== words) place.textContent = words;
}

// Names as one says them.
export function listed(names) {
  const plain = names.map((name) => name.replace(", ", " ")); // a name with a comma would look like two
  return plain.length > 1 ? `${plain.slice(0, -1).join(", ")} and ${plain.at(-1)}` : plain[0];
}

// Choices by name and title, in a list; where there is but one, there is nothing to choose.
export function offer(select, choices) {
  select.replaceChildren(...choices.map(({ name, title }) => new Option(title, name)));
  select.disabled = choices.length < 2;
}

// The same side by side; the first is chosen.
export function segments(place, group, choices) {
  for (const label of place.querySelectorAll("label")) label.remove();
  place.append(...choices.map(({ name, title }, index) => element("label", {},
    element("input", { type: "radio", name: group, value: name, checked: index === 0 }),
    element("span", { textContent: title }))));
}
