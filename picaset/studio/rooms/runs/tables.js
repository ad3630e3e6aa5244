// Tables: settings side by side, and those of the paper.

export function settingsTable(details, onlyDiffering) {
  const names = [...new Set(details.flatMap((detail) => detail.settings.map((setting) => setting.name)))];
  const values = details.map((detail) => new Map(detail.settings.map((setting) => [setting.name, setting.value])));
  const rows = names.map((name) => ({ name, cells: values.map((found) => found.get(name) ?? "–") }))
    .map((row) => ({ ...row, differs: new Set(row.cells).size > 1 }))
    .filter((row) => row.differs || !onlyDiffering || details.length < 2);
  const table = made("table");
  table.append(headOf(["setting", ...details.map((detail) => detail.name)]));
  const body = made("tbody");
  for (const row of rows) {
    const line = made("tr");
    if (row.differs && !onlyDiffering) line.className = "differs";
    line.append(...[row.name, ...row.cells].map((text) => made("td", text)));
    body.append(line);
  }
  table.append(body);
  return rows.length ? table : made("p", "Nothing differs.");
}

export function paperTable({ title, columns, rows, notes }) {
  const whole = made("section");
  const scroll = made("div");
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  const table = made("table");
  table.append(headOf(columns));
  const body = made("tbody");
  for (const row of rows) {
    const line = made("tr");
    line.append(...row.map(cellOf));
    body.append(line);
  }
  table.append(body);
  scroll.append(table);
  whole.append(made("h3", title), scroll, ...notes.map((note) => Object.assign(made("p", note), { className: "hint" })));
  return whole;
}

function cellOf({ found, published, best }) {
  const cell = made("td", found);
  if (best) cell.className = "best";
  if (published) cell.append(Object.assign(made("span", published), { className: "published" }));
  return cell;
}

function headOf(columns) {
  const head = made("thead");
  const line = made("tr");
  line.append(...columns.map((text) => Object.assign(made("th", text), { scope: "col" })));
  head.append(line);
  return head;
}

export function made(kind, text = "") {
  const element = document.createElement(kind);
  element.textContent = text;
  return element;
}
