// Tables of settings side by side, and of the paper.

import { element } from "/static/element.js";

export function settingsTable(details, onlyDiffering) {
  const names = [...new Set(details.flatMap((detail) => detail.settings.map((setting) => setting.name)))];
  const values = details.map((detail) => new Map(detail.settings.map((setting) => [setting.name, setting.value])));
  const rows = names.map((name) => ({ name, cells: values.map((settings) => settings.get(name) ?? "–") }))
    .map((row) => ({ ...row, differs: new Set(row.cells).size > 1 }))
    .filter((row) => row.differs || !onlyDiffering || details.length < 2);
  if (!rows.length) return element("p", {}, "All settings are equal.");
  const columns = ["setting", ...details.map((detail) => detail.name)];
  return buildTable(columns, rows.map((row) => element("tr", { className: row.differs && !onlyDiffering ? "differs" : "" },
    ...[row.name, ...row.cells].map((text, column) => element("td", { data: { column: columns[column] } }, text)))));
}

export function paperTable({ title, columns, rows, notes }) {
  const table = buildTable(columns, rows.map((row) => element("tr", {},
    ...row.map((cell, column) => buildCell(cell, columns[column])))));
  return element("section", {}, element("h3", {}, title),
    element("div", { className: "scroll", tabIndex: 0, attributes: { role: "region", "aria-label": title } }, table),
    ...notes.map((note) => element("p", { className: "hint" }, note)));
}

// On a narrow screen every cell stands on a line of its own, after the name of its column.
function buildCell({ measured, published, best }, column) {
  const cell = element("td", { className: best ? "best" : measured ? "" : "empty", data: { column } }, element("span", {}, measured));
  if (published) cell.append(element("span", { className: "published" }, published));
  return cell;
}

function buildTable(columns, rows) {
  const head = element("tr", {}, ...columns.map((text) => element("th", { scope: "col" }, text)));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}
