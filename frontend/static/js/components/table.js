// The data table: rows come from the server, sorted, filtered and paged there; here they are kept
// up to date, can be picked, and the filter answers as one types.
//
// Markup: #table holds table[data-noun][data-keys], where data-keys is a JSON list of row keys in the
// order of the rows. The element is swapped as a whole, so everything is bound anew after a swap.

import { Columns, taken } from "./cells.js";
import { showListChanges } from "./list_changes.js";
import { live } from "./live.js";

/** Keep the table of the page live. `decorate(row, state)` may adjust what is more than a number. */
export function liveTable(decorate = () => {}) {
  let subscription = 0;

  function bind() {
    if (subscription) live.unsubscribe(subscription);
    subscription = 0;
    const table = document.querySelector("#table table[data-keys]");
    if (!table) return;
    const keys = JSON.parse(table.dataset.keys);
    const rows = [...table.tBodies[0].rows];
    const columns = new Columns(table);
    const places = new Map(keys.map((key, i) => [JSON.stringify(key), i]));
    const states = keys.map(() => ({}));
    bindSelection(table, rows);
    if (!keys.length) return;
    subscription = live.subscribe({ topic: "rows", noun: table.dataset.noun, keys }, (event, data) => {
      for (const [key, values] of data.rows ?? []) {
        const place = places.get(JSON.stringify(key));
        if (place === undefined) continue;
        if (values === null) {
          rows[place].classList.add("gone");
          continue;
        }
        rows[place].classList.remove("gone");
        states[place] = taken(states[place], event, values);
        columns.update(rows[place], states[place]);
        decorate(rows[place], states[place]);
      }
    });
  }

  bind();
  showListChanges();
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx?.target?.id === "table") bind();
  });
}

function bindSelection(table, rows) {
  const all = table.querySelector("[data-select-all]");
  const bar = document.querySelector("#table [data-bulk]");
  const counter = bar?.querySelector("[data-bulk-count]");
  if (!all || !bar) return;
  const boxes = rows.map((row) => row.querySelector('input[type="checkbox"]')).filter(Boolean);
  const refresh = () => {
    const picked = boxes.filter((box) => box.checked).length;
    for (const box of boxes) {
      const row = box.closest("tr");
      // Set on every row, the browser works out the style of all cells again.
      if ((row.ariaSelected === "true") !== box.checked) row.ariaSelected = String(box.checked);
    }
    bar.hidden = picked === 0;
    counter.textContent = `${picked} selected`;
    all.checked = picked > 0 && picked === boxes.length;
    all.indeterminate = picked > 0 && picked < boxes.length;
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    refresh();
  });
  for (const box of boxes) box.addEventListener("change", refresh);
  refresh();
}
