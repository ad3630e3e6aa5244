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
  const quoted = names.map((name) => name.replace(", ", " "));
  return quoted.length > 1 ? `${quoted.slice(0, -1).join(", ")} and ${quoted.at(-1)}` : quoted[0];
}
