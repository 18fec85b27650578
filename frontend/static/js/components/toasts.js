// Short words about something that worked. What went wrong stays beside the thing that failed.

const SHOWN_MS = 4000;

function fade(toast) {
  setTimeout(() => toast.remove(), SHOWN_MS);
}

export function toast(text) {
  const element = document.createElement("p");
  element.className = "toast";
  element.textContent = text;
  document.getElementById("toasts").append(element);
  fade(element);
}

for (const element of document.querySelectorAll("#toasts .toast")) fade(element);
document.addEventListener("toast", (event) => toast(event.detail.value ?? event.detail));
