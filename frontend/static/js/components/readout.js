// Says beside a field with a large number what it amounts to.

import { size } from "./figures.js";

const TIMES = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]];

/** `90000` as `= 1.5 min`; nothing where the number says it all. */
export function readOut(field) {
  if (!field.dataset.unit) return;
  const place = field.form.querySelector(`[data-read="${field.name}"]`);
  const number = Number(field.value.replaceAll(/[ ,_]/g, ""));
  let text = "";
  if (field.value.trim() && Number.isFinite(number) && number >= 1_000) {
    if (field.dataset.unit === "bytes") text = size(number);
    if (field.dataset.unit === "ms") {
      const [unit, length] = TIMES.find(([, least]) => number >= least);
      text = `${Math.round((number / length) * 100) / 100} ${unit}`;
    }
  }
  place.textContent = text && `= ${text}`;
}

export function readOutAll(form) {
  form.querySelectorAll("[data-unit]").forEach(readOut);
}
