// The form of a policy: says while one types what it reaches, and reads numbers out.

import { count, nameElement } from "./components/figures.js";
import { readOut, readOutAll } from "./components/readout.js";

const DEBOUNCE_MS = 150;
const form = document.getElementById("policy");
const reach = document.getElementById("reach");
const words = reach.querySelector("[data-reach]");
const names = reach.querySelector("[data-reach-names]");
let timer = 0;
let asked = 0;

async function look() {
  const mine = ++asked;
  const fields = new URLSearchParams();
  for (const key of ["vhost", "pattern", "apply_to"]) fields.set(key, form.elements[key].value);
  const answer = await fetch(`/policy/preview?${fields}`, { headers: { Accept: "application/json" } });
  if (!answer.ok || mine !== asked) return;
  const found = await answer.json();
  if (mine === asked) show(found);
}

function show(found) {
  reach.classList.toggle("bad", Boolean(found.refusal));
  if (found.refusal) {
    words.textContent = found.refusal;
    names.replaceChildren();
    return;
  }
  const parts = [];
  if (found.queues) parts.push(`${count(found.queues)} ${found.queues === 1 ? "queue" : "queues"}`);
  if (found.exchanges) parts.push(`${count(found.exchanges)} ${found.exchanges === 1 ? "exchange" : "exchanges"}`);
  words.textContent = parts.length ? `Matches ${parts.join(" and ")}:` : "Matches nothing that is there now.";
  const shown = [...found.queue_names, ...found.exchange_names];
  const rest = found.queues + found.exchanges - shown.length;
  names.replaceChildren(...shown.map((name) => item(nameElement(name))), ...(rest ? [item(`and ${count(rest)} more`)] : []));
}

function item(content) {
  const element = document.createElement("li");
  element.append(content);
  return element;
}

function showOwners() {
  const kind = form.elements.apply_to.value;
  for (const section of form.querySelectorAll("[data-owner]")) {
    const fits = kind === "all" || (section.dataset.owner === "exchange") === (kind === "exchanges");
    const isUsed = [...section.querySelectorAll("input, select")].some((field) => field.value);
    section.hidden = !fits && !isUsed;
  }
}

form.addEventListener("input", (event) => {
  const field = event.target;
  readOut(field);
  if (field.name === "apply_to") showOwners();
  if (["vhost", "pattern", "apply_to"].includes(field.name)) {
    clearTimeout(timer);
    timer = setTimeout(look, DEBOUNCE_MS);
  }
});

readOutAll(form);
showOwners();
look();
