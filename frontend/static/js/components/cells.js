// Live values: every `[data-live]` element below a root shows one value of a state object.

import { FORMATS } from "./figures.js";

/** The value of a dotted key: a change is pushed under the whole key, a row holds nested objects. */
export function at(state, path) {
  if (state == null) return undefined;
  if (path in state) return state[path];
  let value = state;
  for (const key of path.split(".")) {
    if (value == null || typeof value !== "object") return undefined;
    value = value[key];
  }
  return value;
}

/** Take one push of a subscription: a start replaces the state, a delta holds changed values. */
export function taken(state, event, data) {
  return event === "start" ? { ...data } : Object.assign(state ?? {}, data);
}

function formatOf({ dataset }) {
  return FORMATS[dataset.format] ?? FORMATS.text;
}

/** Show `value` in `element`. Where nothing reads otherwise than before, the browser has nothing to do. */
function show(element, value, format) {
  // Not every value is pushed; what is not stays as the server wrote it.
  if (value === undefined) return;
  const text = format(value);
  const node = element.firstChild ?? element.appendChild(document.createTextNode(""));
  if (node.data === text) return;
  node.data = text;
  element.classList.toggle("zero", text === "0" || text === "0 B");
  element.classList.toggle("unknown", value == null);
}

export class Cells {
  #cells = [];

  constructor(root) {
    // Rows of a table follow things of their own, which the page's one knows nothing of.
    const skipped = root === document ? "table[data-keys] [data-live]" : "";
    for (const element of root.querySelectorAll("[data-live]")) {
      if (skipped && element.matches(skipped)) continue;
      this.#cells.push({ element, path: element.dataset.live, format: formatOf(element) });
    }
  }

  update(state) {
    for (const { element, path, format } of this.#cells) show(element, at(state, path), format);
  }
}

/** The columns of a table with live values: `[data-live]` in the head says which of its row each shows. */
export class Columns {
  #columns;

  constructor(table) {
    this.#columns = [...table.tHead.querySelectorAll("[data-live]")].map((head) => (
      { place: head.cellIndex, path: head.dataset.live, format: formatOf(head) }
    ));
  }

  update(row, state) {
    for (const { place, path, format } of this.#columns) show(row.cells[place], at(state, path), format);
  }
}
