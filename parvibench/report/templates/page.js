// Sorting by column and filtering of rows; the page works without it.
"use strict";
function key(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  return cell.textContent.trim().toLowerCase();
}
function compare(a, b) {
  // Numbers before words, words before nothing, whatever the direction of sorting.
  const kind = (v) => (typeof v === "number" ? 0 : v === "" ? 2 : 1);
  return kind(a) - kind(b);
}
function sortTable(header) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const down = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = Array.from(table.tBodies[0].rows, (row) => [key(row, column), row]);
  rows.sort(([a], [b]) => {
    const kinds = compare(a, b);
    if (kinds !== 0) return kinds;
    const order = a < b ? -1 : a > b ? 1 : 0;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
}
for (const button of document.querySelectorAll("table.sortable thead button")) {
  button.addEventListener("click", () => sortTable(button.closest("th")));
}
const box = document.getElementById("filter");
box.addEventListener("input", () => {
  const wanted = box.value.trim().toLowerCase();
  let shown = 0;
  const rows = document.querySelectorAll("main tbody tr");
  for (const row of rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
    shown += row.hidden ? 0 : 1;
  }
  document.getElementById("filtered").textContent = wanted ? `${shown} of ${rows.length} rows` : "";
});
