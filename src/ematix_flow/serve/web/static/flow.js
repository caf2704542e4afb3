// The script of all pages: actions, forms, times in the viewer's zone, live parts, tables and logs. `lab.js` has the SQL lab.
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
  if (answer.triggered !== undefined) return `${answer.value}: ${answer.triggered ? "the alert is triggered" : "no alert"}`;
  if (answer.removed) return "removed";
  if (answer.updated_at) return `saved: ${answer.name}`;
  if (answer.detail) return `${answer.status}: ${answer.detail}`;
  if (answer.new_run_id) return `requested: ${answer.new_run_id}`;
  if (answer.status && typeof answer.status === "string") return answer.status.replace("_", " ");
  return JSON.stringify(answer.report || answer).slice(0, 300);
}

function filled(pattern, answer) {
  return pattern.replace(/\{([\w.]+)\}/g, (_, path) =>
    encodeURIComponent(path.split(".").reduce((value, key) => (value ? value[key] : ""), answer) || ""));
}

async function act(element, address, body, method = "POST") {
  if (!(await confirmed(element.dataset.confirm))) return;
  const buttons = element.matches("button") ? [element] : all("button", element);
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const answer = await send(address, body, method);
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
    if (field.closest("[data-list]")) {
      values[field.name] = [...(values[field.name] || []), ...(field.value ? [field.value] : [])];
    } else values[field.name] = field.type === "checkbox" ? field.checked : field.value;
  }
  return values;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-post]");
  if (button) act(button, button.dataset.post, JSON.parse(button.dataset.body || "{}"));
  const remove = event.target.closest("button[data-delete]");
  if (remove) act(remove, remove.dataset.delete, undefined, "DELETE");
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
    refreshAgain();
  }
}

// What is not counted yet is shown as soon as it is.
function refreshAgain() {
  if (one("[data-again]")) setTimeout(refresh, 1500);
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

function prepare(within = document) {
  localTimes(within);
  sortable(within);
  elapsed();
}

// What was sent, so that only a part that differs is put in place of one that somebody fills in.
for (const part of all("[data-live]")) part.dataset.source = part.innerHTML;
prepare();
listen();
refreshAgain();
all("[data-log]").forEach((log) => { log.scrollTop = log.scrollHeight; follow(log); });
for (const select of all("select[name=pipeline]")) {
  const chosen = new URLSearchParams(location.search).get("pipeline");
  if (chosen && [...select.options].some((option) => option.value === chosen)) select.value = chosen;
}
