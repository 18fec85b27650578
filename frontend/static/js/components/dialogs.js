// Dialogs open from any `[data-open="id"]` and close on Esc, on the backdrop and on `[data-close]`.
// In a dialog with `[data-expect]`, the button that acts stays off until the name is typed.

function openDialog(id) {
  const dialog = document.getElementById(id);
  if (!(dialog instanceof HTMLDialogElement) || dialog.open) return;
  dialog.showModal();
  dialog.querySelector("[autofocus]")?.focus();
  dialog.dispatchEvent(new Event("opened"));
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest?.("[data-open]");
  if (opener) return openDialog(opener.dataset.open);
  if (event.target.closest?.("[data-close]")) return event.target.closest("dialog")?.close();
  if (event.target instanceof HTMLDialogElement && event.target.open) event.target.close();
});

document.addEventListener("input", (event) => {
  const field = event.target;
  if (!(field instanceof HTMLInputElement) || field.dataset.expect === undefined) return;
  field.form.querySelector("[data-acts]").disabled = field.value !== field.dataset.expect;
});

// A form that was refused comes back open, with what was typed and why.
const refused = document.querySelector("dialog[data-refused]");
if (refused) openDialog(refused.id);

export { openDialog };
