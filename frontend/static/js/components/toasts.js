// Short words about something that worked, or about a request of a part of the page that failed. Why
// a form was refused stays beside the form.

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
