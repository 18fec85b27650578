// Dialogs open from any `[data-open="id"]` and close on Esc, on the backdrop and on `[data-close]`.
// In a dialog with `[data-expect]`, the button that acts stays off until the name is typed.

function openDialog(id) {
  const dialog = document.getElementById(id);
  if (!(dialog instanceof HTMLDialogElement) || dialog.open) return;
  dialog.showModal();
  dialog.querySelector("[autofocus]")?.focus();
  dialog.dispatchEvent(new Event("opened"));
}

// A selection of text may end beside the dialog in which it began, or the other way round.
let pressed = null;
let released = null;
document.addEventListener("pointerdown", ({ target }) => { pressed = target; });
document.addEventListener("pointerup", ({ target }) => { released = target; });

function isOnBackdrop({ target }) {
  return target instanceof HTMLDialogElement && target.open && pressed === target && released === target;
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest?.("[data-open]");
  if (opener) return openDialog(opener.dataset.open);
  if (event.target.closest?.("[data-close]")) return event.target.closest("dialog")?.close();
  if (isOnBackdrop(event)) event.target.close();
});

document.addEventListener("input", (event) => {
  const field = event.target;
  if (!(field instanceof HTMLInputElement) || field.dataset.expect === undefined) return;
  field.closest("dialog").querySelector("[data-acts]").disabled = field.value !== field.dataset.expect;
});

// A fragment that was fetched for a dialog opens it.
document.addEventListener("htmx:after:swap", (event) => {
  const opens = event.detail.ctx?.target?.dataset?.opens;
  if (opens) openDialog(opens);
});

// Enter in the field must not press the first button of the form behind the dialog.
document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key !== "Enter" || !(field instanceof HTMLInputElement) || field.dataset.expect === undefined) return;
  const acts = field.closest("dialog")?.querySelector("[data-acts]");
  if (!acts || field.form.querySelector('[type="submit"]') === acts) return;
  event.preventDefault();
  if (!acts.disabled) acts.click();
});

// A form that was refused comes back open, with what was typed and why.
const refused = document.querySelector("dialog[data-refused]");
if (refused) openDialog(refused.id);

export { openDialog };
