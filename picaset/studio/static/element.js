// Helpers that create and fill elements of the page.

export function element(tag, { className = "", data = {}, attributes = {}, ...properties } = {}, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  Object.assign(node.dataset, data);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  Object.assign(node, properties);
  node.append(...children);
  return node;
}

export function svgElement(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Setting an unchanged text would still cost a layout, and a screen reader would read it again.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// "A, B and C"
export function joinNames(names) {
  const plain = names.map((name) => name.replace(", ", " ")); // a name with a comma would look like two
  return plain.length > 1 ? `${plain.slice(0, -1).join(", ")} and ${plain.at(-1)}` : plain[0];
}

export function formatTime(milliseconds) {
  return `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
}

// Fills a list with choices; with a single choice it is disabled.
export function fillSelect(select, choices) {
  select.replaceChildren(...choices.map(({ name, title }) => new Option(title, name)));
  select.disabled = choices.length < 2;
}

// Fills a row of radio buttons; the first is checked.
export function fillSegments(fieldset, group, choices) {
  for (const label of fieldset.querySelectorAll("label")) label.remove();
  fieldset.append(...choices.map(({ name, title }, index) => element("label", {},
    element("input", { type: "radio", name: group, value: name, checked: index === 0 }),
    element("span", { textContent: title }))));
}
