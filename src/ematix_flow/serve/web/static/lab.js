// The SQL lab and dashboards: queries, their pictures, and forms for what is saved.
"use strict";

async function query(address, body, drawn) {
  const state = one("#query-state");
  state.textContent = "running …";
  try {
    const result = await send(address, body);
    if (result.error) throw new Error(result.error);
    const { row_count: count, truncated, elapsed_ms: ms } = result.stats;
    const { name, kind, x, y } = result.chart || drawn;
    state.textContent = `${name ? `${name}: ` : ""}${count} rows${truncated ? ", and more" : ""}, ${ms} ms`;
    showRows(one("#query-result"), result);
    one("#query-chart").replaceChildren(...(kind === "table" ? [] : [picture(kind, result, x, y)]));
  } catch (error) {
    state.textContent = error.message;
  }
}

function picture(kind, result, x, y) {
  if (kind !== "number") return chart(kind, result.columns, result.rows, x, y);
  const at = Math.max(result.columns.findIndex((column) => column.name === y), 0);
  return cell("p", result.rows.length ? String(result.rows[0][at]) : "");
}

function showRows(table, result) {
  const head = document.createElement("tr");
  for (const column of result.columns) head.append(cell("th", column.name, column.type));
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...result.rows.map((row) => {
    const line = document.createElement("tr");
    for (const value of row) line.append(cell("td", value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value)));
    return line;
  }));
}

function cell(kind, text, title = "") {
  const element = document.createElement(kind);
  element.textContent = text;
  if (title) element.title = title;
  return element;
}

function chart(kind, columns, rows, x, y) {
  const names = columns.map((column) => column.name);
  const across = Math.max(names.indexOf(x), 0);
  const up = names.includes(y) ? names.indexOf(y) : names.findIndex((_, at) => at !== across && rows.some((row) => !Number.isNaN(parseFloat(row[at]))));
  const values = rows.slice(0, 200).map((row) => Number(row[up < 0 ? across : up]) || 0);
  const most = Math.max(...values, 1);
  const step = 700 / Math.max(values.length, 1);
  const svg = shape("svg", { viewBox: "0 0 720 180", class: "chart", role: "img", "aria-label": `${names[up] || ""} by ${names[across] || ""}` });
  if (kind === "line") {
    svg.append(shape("polyline", { class: "rows", points: values.map((value, at) => `${10 + (at + 0.5) * step},${160 - 140 * value / most}`).join(" ") }));
  } else {
    values.forEach((value, at) => {
      const bar = shape("rect", { class: "s-running", x: 10 + at * step, y: 160 - 140 * value / most, width: step * 0.8, height: Math.max(140 * value / most, 0) });
      const title = shape("title", {});
      title.textContent = `${rows[at][across]}: ${value}`;
      bar.append(title);
      svg.append(bar);
    });
  }
  const label = shape("text", { x: 10, y: 176 });
  label.textContent = `${names[up] || ""} by ${names[across] || ""}, up to ${most}`;
  svg.append(label);
  return svg;
}

function shape(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function dashboards() {
  for (const box of all("[data-chart]")) {
    const result = { columns: JSON.parse(box.dataset.columns), rows: JSON.parse(box.dataset.rows) };
    if (box.dataset.chart !== "table") {
      box.replaceChildren(picture(box.dataset.chart, result, box.dataset.x, box.dataset.y));
      continue;
    }
    const table = document.createElement("table");
    table.createTHead();
    table.createTBody();
    showRows(table, result);
    box.replaceChildren(table);
  }
}

// Forms: one that is filled from what is saved changes that; an empty one saves anew.
function fill(form, entry) {
  form.dataset.key = entry.id || "";
  one("button:not([type])", form).textContent = entry.id ? "Save changes" : "Save";
  for (const list of all("[data-list]", form)) resize(list, entry[list.dataset.list] || []);
  for (const field of form.elements) {
    if (field.name && field.name in entry && !field.closest("[data-list]")) field.value = entry[field.name];
  }
}

// A list has a field for each of its values, and an empty one for the next.
function resize(list, values) {
  const [first, ...others] = all("label", list);
  others.forEach((label) => label.remove());
  [...values, ""].forEach((value, at) => {
    const label = at === 0 ? first : first.cloneNode(true);
    one("span", label).textContent = `${first.dataset.label} ${at + 1}`;
    if (at > 0) list.append(label);
    one("select", label).value = value;
  });
}

document.addEventListener("change", (event) => {
  const list = event.target.closest("[data-list]");
  if (!list) return;
  const values = all("select", list).map((select) => select.value).filter(Boolean);
  const at = all("select", list).indexOf(event.target);
  resize(list, values);
  all("select", list)[Math.min(at, values.length)].focus();
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.show) query(button.dataset.show, {}, {});
  if (!button.dataset.entry) return;
  const entry = JSON.parse(button.dataset.entry);
  const form = document.getElementById(button.dataset.form);
  if (entry.sql) {
    const editor = one("#query");
    editor.sql.value = entry.sql;
    editor.datasource_id.value = entry.datasource_id;
    if (!form) editor.sql.focus();
  }
  if (!form) return;
  fill(form, entry);
  form.closest("details").open = true;
  form.elements[0].focus();
});

document.addEventListener("reset", (event) => {
  if (event.target.dataset.save) setTimeout(() => fill(event.target, {}));
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.id === "query") {
    event.preventDefault();
    const { datasource_id: source, sql, show } = fields(form);
    query("/api/query", { datasource_id: source, sql, max_rows: 1000 }, { kind: show });
  } else if (form.dataset.save) {
    event.preventDefault();
    const { datasource_id: source, sql } = form.id === "query-form" ? fields(one("#query")) : {};
    const body = form.id === "query-form" ? { ...fields(form), datasource_id: source, sql } : fields(form);
    const key = form.dataset.key;
    document.activeElement.blur(); // what is saved may be put in place of the form
    act(form, key ? `${form.dataset.save}/${key}` : form.dataset.save, body, key ? "PUT" : "POST");
  }
});

dashboards();
