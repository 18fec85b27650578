// The form that declares a queue or an exchange: only the arguments that its type has use for.

import { readOut, readOutAll } from "./readout.js";

export function showKinds(form) {
  const kind = form.elements.type;
  const show = () => {
    for (const group of form.querySelectorAll("[data-kinds]")) {
      const fits = !group.dataset.kinds || group.dataset.kinds.split(",").includes(kind.value);
      group.hidden = !fits;
      // What is not shown is not sent.
      for (const field of group.querySelectorAll("input, select")) field.disabled = !fits;
    }
    for (const text of form.querySelectorAll("[data-of-kind]")) text.hidden = text.dataset.ofKind !== kind.value;
  };
  kind.addEventListener("change", show);
  form.addEventListener("input", (event) => readOut(event.target));
  readOutAll(form);
  show();
}
