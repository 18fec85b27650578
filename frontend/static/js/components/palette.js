// The command palette: `/` or Ctrl-K, type part of a name, Enter opens.

import { openDialog } from "./dialogs.js";
import { nameElement } from "./figures.js";

const DEBOUNCE_MS = 60;
const dialog = document.getElementById("palette");
const field = dialog.querySelector("input");
const list = dialog.querySelector("ul");
let timer = 0;
let asked = 0;
let chosen = 0;
// What was typed for the list that is shown, and whether Enter waits for the list of what is typed now.
let listed = null;
let isOpening = false;

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

document.addEventListener("keydown", (event) => {
  const wanted = (event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyping(event.target));
  if (!wanted || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  openDialog("palette");
});

dialog.addEventListener("opened", () => {
  field.value = "";
  listed = null;
  isOpening = false;
  field.focus();
  ask();
});

field.addEventListener("input", () => {
  isOpening = false;
  clearTimeout(timer);
  timer = setTimeout(ask, DEBOUNCE_MS);
});

field.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    choose(chosen + step);
  } else if (event.key === "Enter") {
    if (listed === field.value) return openChosen();
    isOpening = true;
    clearTimeout(timer);
    ask();
  }
});

function openChosen() {
  list.children[chosen]?.querySelector("a")?.click();
}

async function ask() {
  const mine = ++asked;
  const typed = field.value;
  const answer = await fetch(`/palette?q=${encodeURIComponent(typed)}`, { headers: { Accept: "application/json" } });
  if (!answer.ok || mine !== asked) return;
  const { results } = await answer.json();
  if (mine !== asked) return;
  show(results);
  listed = typed;
  if (isOpening && dialog.open) openChosen();
  isOpening = false;
}

function show(results) {
  list.replaceChildren(...results.map(({ kind, name, where, url }, i) => {
    const item = document.createElement("li");
    item.id = `palette-${i}`;
    item.role = "option";
    const link = document.createElement("a");
    link.href = url;
    link.tabIndex = -1;
    const label = document.createElement("span");
    label.className = "palette-kind";
    label.textContent = kind;
    link.append(label, nameElement(name));
    if (where) {
      const place = nameElement(where);
      place.classList.add("palette-where");
      link.append(place);
    }
    item.append(link);
    return item;
  }));
  if (!results.length) {
    const item = document.createElement("li");
    item.className = "palette-none";
    item.textContent = "Nothing has this in its name.";
    list.append(item);
  }
  choose(0);
}

function choose(index) {
  const items = [...list.querySelectorAll('[role="option"]')];
  if (!items.length) return;
  chosen = (index + items.length) % items.length;
  items.forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
  items[chosen].scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", items[chosen].id);
}
