// Sorts and filters tables, fills the leaderboard with other metrics, and keeps all choices in the address after "#";
// without this script the page shows all methods and targets.
"use strict";
const numbers = JSON.parse(document.getElementById("numbers").textContent);
const board = document.getElementById("leaderboard-table");
const control = (id) => document.getElementById(id);
const DIVISIONS = ["tuned", "self-tuning"];
const HEAD = 5;                // columns before the tasks: method, kind, average rank, tasks, cost
const boardRows = Array.from(board.tBodies[0].rows);
const CHOICES = ["group", "kind", "metric", "axis", "filter"];
let order = [2, false];        // of the leaderboard: column, whether downwards

for (const link of document.querySelectorAll("td a, th a")) if (Object.hasOwn(numbers.names, link.textContent)) link.title = numbers.names[link.textContent];

for (const header of document.querySelectorAll("th[data-tip]")) header.title = numbers.tips[header.dataset.tip];

function number(value) {
  // Three significant digits, as the page's other numbers.
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) {
    const rounded = Number(value.toPrecision(3));
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(rounded))));
    return rounded.toFixed(digits);
  }
  return value.toExponential(2).replace("e+", "e");
}
function sortKey(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.v === "") return parseFloat(cell.textContent.trim().replaceAll(",", ""));  // the number shown
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  return cell.textContent.trim().toLowerCase();
}
function sortTable(header, down) {
  const table = header.closest("table");
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  // Numbers before text, text before empty cells, in either direction.
  const kind = (v) => (typeof v === "number" ? 0 : v === "" ? 2 : 1);
  // The leaderboard from its first order: equal ranks do not swap when a choice is taken back.
  const rows = Array.from(table === board ? boardRows : table.tBodies[0].rows, (row) => [sortKey(row, header.cellIndex), row]);
  rows.sort(([a], [b]) => {
    if (kind(a) !== kind(b)) return kind(a) - kind(b);
    const order = a < b ? -1 : a > b ? 1 : 0;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
  if (table === board) order = [header.cellIndex, down];
}
for (const header of document.querySelectorAll("table.sortable thead th")) {
  header.addEventListener("click", () => { sortTable(header, header.getAttribute("aria-sort") === "ascending"); save(); });
}

function put(cell, text, value) {
  cell.querySelector("bdi").textContent = text;
  if (value === null || value === undefined) delete cell.dataset.v;
  else cell.dataset.v = value;
}
function fillBoard() {
  const metric = numbers.metrics[control("metric").value];
  const axis = control("axis").value, group = control("group").value;
  const ranks = numbers.ranks[control("kind").value][group];
  const headers = Array.from(board.tHead.rows[0].cells);
  headers.slice(HEAD).forEach((header) => {
    const small = header.querySelector("small");
    if (small.dataset.own === undefined) small.dataset.own = small.textContent;
    small.textContent = metric.name || small.dataset.own;
  });
  boardRows.forEach((row, r) => {
    const [average, tasks] = (metric.name ? null : ranks[r]) || [null, null];  // ranks are by the own metrics
    put(row.cells[2], average === null ? "" : number(average), average);
    put(row.cells[3], tasks ? String(tasks) : "", tasks);
    const cost = numbers.costs[axis][group][r];
    put(row.cells[4], cost === null ? "" : axis === "seconds" ? number(cost) : Math.round(cost).toLocaleString("en-US"), cost);
    headers.slice(HEAD).forEach((_, c) => {
      const cell = row.cells[HEAD + c], found = metric.cells[r][c] ?? null;
      const [text, key, best] = found === null ? ["", null] : typeof found === "number" ? [number(found), found] : found;
      put(cell, text, key);
      if (cell.dataset.help === undefined) cell.dataset.help = cell.title;
      cell.title = metric.name ? "" : cell.dataset.help;
      cell.classList.toggle("status", /^[a-z]/.test(text));
      for (const look of ["best", "strong"]) cell.classList.toggle(look, Boolean(best & [1, 2, 4][place()]));
    });
  });
  headers[4].querySelector("bdi").textContent = numbers.axes[axis];
  sortTable(headers[order[0]], order[1]);
}
// Which of the comparisons is shown: of all methods, of those of one kind, of those of one division.
const place = () => (control("kind").value === "" ? 0 : DIVISIONS.includes(control("kind").value) ? 2 : 1);
const apart = (kind, label, chosen) => chosen !== "" && kind !== chosen && numbers.divisions[label.trim()] !== chosen;
function amongKind() {
  // Ranks and outcomes of tests in a task's table: among all methods, or among those of the part shown.
  for (const cell of document.querySelectorAll("td[data-own]")) {
    const text = cell.querySelector("bdi"), own = cell.dataset;
    if (own.all === undefined) Object.assign(own, {all: text.textContent, allLook: cell.className, allV: own.v || ""});
    const [shown, look] = place() ? own.own.split("|").slice(2 * place() - 2) : [own.all, own.allLook];
    text.textContent = shown;
    cell.className = look;
    if (own.allV !== "") own.v = place() ? shown : own.allV;
  }
}
const kinds = new Map(boardRows.map((row) => [row.cells[0].textContent.trim(), row.dataset.kind]));
let drawn = "";  // part whose curves are shown
function draw(part) {
  if (part === drawn) return;
  drawn = part;
  for (const svg of document.querySelectorAll("svg[data-plot]")) JSON.parse(svg.dataset.plot).names.forEach((label, line) => {
    const off = kinds.has(label) && kinds.get(label) !== "anchor" && apart(kinds.get(label), label, part);
    for (const mark of svg.querySelectorAll(`[data-line="${line}"]`)) {
      mark.classList.toggle("off", off);
      if (mark.hasAttribute("role")) mark.setAttribute("aria-pressed", String(!off));
    }
  });
}
function filter() {
  const group = control("group").value, kind = control("kind").value, axis = control("axis").value;
  const wanted = control("filter").value.trim().toLowerCase();
  for (const part of document.querySelectorAll("[data-view]")) part.hidden = part.dataset.view !== kind || (part.dataset.of !== undefined && part.dataset.of !== group);
  for (const element of document.querySelectorAll("[data-group]:not(tr)")) element.hidden = group !== "" && element.dataset.group !== group;
  for (const figure of document.querySelectorAll("figure[data-axis]")) {
    const drawn = figure.parentElement.querySelector(`figure[data-axis="${axis}"]`) ? axis : "score_evaluations";  // tuning has no curve
    figure.hidden = figure.dataset.axis !== drawn;
  }
  for (const method of document.querySelectorAll("details[data-kind]")) method.hidden = apart(method.dataset.kind, method.querySelector("summary").textContent, kind);
  let shown = 0, all = 0;
  for (const row of document.querySelectorAll("main tbody tr")) {
    const own = row.dataset;
    const out = (own.kind && own.kind !== "anchor" && apart(own.kind, row.cells[0].textContent, kind)) || (group && own.group && own.group !== group);
    if (out) own.out = "1";
    else delete own.out;
    row.hidden = Boolean(out) || (wanted !== "" && !row.textContent.toLowerCase().includes(wanted));
    if (row.closest("[data-view][hidden]")) continue;
    all += 1;
    shown += row.hidden ? 0 : 1;
  }
  const others = numbers.metrics[control("metric").value].name ? " Sentences, ranks, best methods and pictures over tasks are by each task's own metric." : "";
  const left = group ? " Pictures over tasks are of all targets." : "";
  control("filtered").textContent = (wanted || kind || group ? `${shown} of ${all} rows.` : "") + left + others;
  amongKind();
  draw(kind);
  fillBoard();
}
function save() {
  const state = new URLSearchParams();
  for (const id of CHOICES) if (control(id).value !== first[id]) state.set(id, id === "metric" ? numbers.metrics[control(id).value].name : control(id).value);
  if (order[0] !== 2 || order[1]) state.set("sort", (order[1] ? "-" : "") + order[0]);
  const section = location.hash.slice(1).split("?")[0];
  const found = state.toString();
  if (section || found || location.hash) history.replaceState(null, "", `#${section}${found ? "?" + found : ""}`);
}
function restore() {
  const [section, found] = location.hash.slice(1).split("?");
  if (found === undefined) return;
  const state = new URLSearchParams(found);
  for (const id of CHOICES) {
    let value = state.has(id) ? state.get(id) : first[id];
    if (id === "metric" && state.has(id)) value = String(Math.max(0, numbers.metrics.findIndex((m) => m.name === value)));
    control(id).value = value;
    if (control(id).value !== value) control(id).value = first[id];  // the page has no such choice
  }
  const at = parseInt(state.get("sort") || "2", 10);
  if (board.tHead.rows[0].cells[Math.abs(at)]) order = [Math.abs(at), (state.get("sort") || "").startsWith("-")];
  if (section && control(section)) control(section).scrollIntoView();
}
const first = Object.fromEntries(CHOICES.map((id) => [id, control(id).value]));
for (const id of CHOICES) control(id).addEventListener(id === "filter" ? "input" : "change", () => { filter(); save(); });
control("controls").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", () => {
  if (!location.hash.includes("?")) return save();
  restore();
  filter();
});
restore();
filter();
