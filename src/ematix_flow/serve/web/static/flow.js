// The only script of the pages: actions, times in the viewer's zone, live parts, tables, logs and the SQL lab.
"use strict";

const all = (query, within = document) => [...within.querySelectorAll(query)];
const one = (query, within = document) => within.querySelector(query);

function toast(text, bad = false) {
  const box = one("#toast");
  box.textContent = text;
  box.className = bad ? "bad" : "";
  box.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { box.hidden = true; }, bad ? 12000 : 5000);
}

function confirmed(text) {
  if (!text) return Promise.resolve(true);
  const dialog = one("#confirm");
  one("#confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function send(address, body, method = "POST") {
  const response = await fetch(address, {
    method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), credentials: "same-origin",
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const detail = typeof answer.detail === "string" ? answer.detail : JSON.stringify(answer.detail || response.status);
    throw new Error(answer.hint ? `${detail} (${answer.hint})` : detail);
  }
  return answer;
}

function summary(answer) {
  if (answer.detail) return `${answer.status}: ${answer.detail}`;
  if (answer.new_run_id) return `requested: ${answer.new_run_id}`;
  if (answer.status && typeof answer.status === "string") return answer.status.replace("_", " ");
  return JSON.stringify(answer.report || answer).slice(0, 300);
}

function filled(pattern, answer) {
  return pattern.replace(/\{([\w.]+)\}/g, (_, path) =>
    encodeURIComponent(path.split(".").reduce((value, key) => (value ? value[key] : ""), answer) || ""));
}

async function act(element, address, body) {
  if (!(await confirmed(element.dataset.confirm))) return;
  const buttons = element.matches("button") ? [element] : all("button", element);
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const answer = await send(address, body);
    toast(summary(answer), answer.status === "fail");
    if (element.dataset.then) location.assign(filled(element.dataset.then, answer));
    else refresh();
  } catch (error) {
    toast(error.message, true);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

function fields(form) {
  const values = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    values[field.name] = field.type === "checkbox" ? field.checked : field.value;
  }
  return values;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-post]");
  if (button) act(button, button.dataset.post, JSON.parse(button.dataset.body || "{}"));
  const saved = event.target.closest("button[data-query]");
  if (saved) {
    const form = one("#query");
    if (form) { form.sql.value = saved.dataset.query; form.datasource_id.value = saved.dataset.source; form.sql.focus(); }
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.post) {
    event.preventDefault();
    act(form, form.dataset.post, fields(form));
  } else if (form.dataset.backfill !== undefined) {
    event.preventDefault();
    const { pipeline, from, to, again } = fields(form);
    const body = { from: `${from}Z`, to: `${to}Z`, again };
    act(form, `/api/pipelines/${encodeURIComponent(pipeline)}/backfill`, body);
  } else if (form.id === "query") {
    event.preventDefault();
    query(form);
  }
});

// Times: those of the viewer's zone, UTC on hover.
function localTimes(within = document) {
  for (const element of all("time[datetime]", within)) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.valueOf())) element.textContent = at.toLocaleString();
  }
  for (const cell of all("[data-ms]", within)) {
    const at = new Date(Number(cell.dataset.ms));
    cell.textContent = at.toLocaleString();
    cell.title = at.toISOString();
  }
}

// How long a step that is under way takes so far.
function elapsed() {
  for (const element of all("[data-since]")) {
    const seconds = Math.max(0, Math.floor((Date.now() - new Date(element.dataset.since)) / 1000));
    element.textContent = seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  }
}
setInterval(elapsed, 1000);

// Tables: a click on a heading sorts, a filter hides rows.
function sortable(within = document) {
  for (const table of all("table[data-sortable]", within)) {
    all("thead th", table).forEach((heading, column) => {
      if (one("button", heading) || heading.dataset.plain !== undefined) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => sortBy(table, heading, column));
    });
  }
}

function sortBy(table, heading, column) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => {
    const cell = row.cells[column];
    return cell ? (cell.dataset.value !== undefined ? cell.dataset.value : cell.textContent.trim()) : "";
  };
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((left, right) => {
    const [a, b] = [value(left), value(right)];
    const numbers = a !== "" && b !== "" && !Number.isNaN(Number(a)) && !Number.isNaN(Number(b));
    const order = numbers ? Number(a) - Number(b) : a.localeCompare(b);
    return down ? -order : order;
  });
  body.append(...rows);
}

function filterRows(input) {
  const table = document.getElementById(input.dataset.filter);
  const text = input.value.toLowerCase();
  if (table) for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(text);
}
document.addEventListener("input", (event) => {
  if (event.target.dataset && event.target.dataset.filter) filterRows(event.target);
});

// Live parts: the server says that something changed, and the page fetches itself again.
let fetching = false;
async function refresh() {
  const parts = all("[data-live]");
  if (fetching || !parts.length) return;
  fetching = true;
  try {
    const response = await fetch(location.href, { credentials: "same-origin" });
    if (!response.ok) return;
    const next = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of parts) {
      const newer = next.getElementById(part.id);
      const typing = part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
      if (newer && !typing && newer.innerHTML !== part.dataset.source) {
        part.dataset.source = newer.innerHTML;
        part.replaceChildren(...document.importNode(newer, true).childNodes);
        prepare(part);
      }
    }
    all("[data-filter]").forEach(filterRows);
  } finally {
    fetching = false;
  }
}

function listen() {
  const address = document.body.dataset.events;
  const state = one("#live-state");
  if (!address || !window.EventSource) return;
  const source = new EventSource(address);
  let timer = 0;
  source.addEventListener("hello", () => { state.textContent = "live"; });
  source.addEventListener("changed", () => { clearTimeout(timer); timer = setTimeout(refresh, 300); });
  source.addEventListener("error", () => { state.textContent = "not live"; });
  window.addEventListener("pagehide", () => source.close());
}

// Logs: what is added while a run goes on.
async function follow(log) {
  if (log.dataset.complete === "yes") return;
  const response = await fetch(`${log.dataset.log}?offset=${log.dataset.offset}`, { credentials: "same-origin" });
  if (response.ok) {
    const part = await response.json();
    if (part.text) {
      const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
      log.append(part.text);
      if (atEnd) log.scrollTop = log.scrollHeight;
    }
    log.dataset.offset = part.next_offset;
    log.dataset.complete = part.complete ? "yes" : "no";
  }
  setTimeout(() => follow(log), 1500);
}

// The SQL lab.
async function query(form) {
  const state = one("#query-state");
  const { datasource_id: source, sql, show } = fields(form);
  state.textContent = "running …";
  try {
    const result = await send("/api/query", { datasource_id: source, sql, max_rows: 1000 });
    const { row_count: count, truncated, elapsed_ms: ms } = result.stats;
    state.textContent = `${count} rows${truncated ? ", and more" : ""}, ${ms} ms`;
    showRows(one("#query-result"), result);
    one("#query-chart").replaceChildren(...(show === "table" ? [] : [chart(show, result.columns, result.rows, "", "")]));
  } catch (error) {
    state.textContent = error.message;
  }
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
    const columns = JSON.parse(box.dataset.columns);
    const rows = JSON.parse(box.dataset.rows);
    if (box.dataset.chart === "number") box.textContent = rows.length ? String(rows[0][0]) : "";
    else if (box.dataset.chart === "table") {
      const table = document.createElement("table");
      table.createTHead();
      table.createTBody();
      showRows(table, { columns, rows });
      box.replaceChildren(table);
    } else box.replaceChildren(chart(box.dataset.chart, columns, rows, box.dataset.x, box.dataset.y));
  }
}

function saving() {
  const button = one("#save-query");
  if (!button) return;
  button.addEventListener("click", async () => {
    const { datasource_id: source, sql } = fields(one("#query"));
    const name = window.prompt("Name of the query");
    if (!name) return;
    try {
      await send("/api/saved-queries", { name, datasource_id: source, sql });
      location.reload();
    } catch (error) {
      toast(error.message, true);
    }
  });
}

function prepare(within = document) {
  localTimes(within);
  sortable(within);
  elapsed();
}

prepare();
dashboards();
saving();
listen();
all("[data-log]").forEach((log) => { log.scrollTop = log.scrollHeight; follow(log); });
for (const select of all("select[name=pipeline]")) {
  const chosen = new URLSearchParams(location.search).get("pipeline");
  if (chosen && [...select.options].some((option) => option.value === chosen)) select.value = chosen;
}
