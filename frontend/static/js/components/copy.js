// Buttons that copy: `data-copy` holds the text, or is empty beside the <pre> that does.

const SAID_MS = 1500;
// Of each button that says how it went: what it says otherwise, and until when.
const labels = new WeakMap();

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS, a page of another machine has no clipboard; a browser may also refuse it.
    return copiedFromField(text);
  }
}

function copiedFromField(text) {
  const field = document.createElement("textarea");
  field.className = "visually-hidden";
  field.value = text;
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}

function say(button, word) {
  const { label, timer } = labels.get(button) ?? { label: button.textContent };
  clearTimeout(timer);
  button.textContent = word;
  labels.set(button, {
    label,
    timer: setTimeout(() => {
      button.textContent = label;
      labels.delete(button);
    }, SAID_MS),
  });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const text = button.dataset.copy || button.parentElement.querySelector("pre")?.textContent || "";
  say(button, (await copied(text)) ? "copied" : "not copied");
});
