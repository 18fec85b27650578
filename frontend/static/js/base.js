// What every page does: menu, theme, dialogs, toasts, times, forms that are sent once, and the live figures on top.

import "./components/security.js";
import "./components/copy.js";
import "./components/dialogs.js";
import "./components/failures.js";
import { toast } from "./components/toasts.js";
import "./components/palette.js";
import { rate, moment, timeOfDay } from "./components/figures.js";
import { at } from "./components/cells.js";
import { live } from "./components/live.js";
import { overview } from "./components/overview_feed.js";

// Menu on small screens
const toggle = document.querySelector(".menu-toggle");
toggle.addEventListener("click", () => {
  const open = document.body.classList.toggle("menu-open");
  toggle.setAttribute("aria-expanded", String(open));
});

// Theme
const themeButtons = document.querySelectorAll("[data-theme-choice]");
function showTheme() {
  const chosen = document.documentElement.dataset.theme ?? "auto";
  for (const button of themeButtons) button.setAttribute("aria-pressed", String(button.dataset.themeChoice === chosen));
}
for (const button of themeButtons) {
  button.addEventListener("click", () => {
    const choice = button.dataset.themeChoice;
    if (choice === "auto") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("leveret.theme");
    } else {
      document.documentElement.dataset.theme = choice;
      localStorage.setItem("leveret.theme", choice);
    }
    showTheme();
    document.dispatchEvent(new Event("theme"));
  });
}
showTheme();

// A menu closes when one clicks elsewhere or leaves with Esc.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.drop[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.drop[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// Times in the viewer's zone
function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const when = Date.parse(element.dateTime);
    if (Number.isNaN(when)) continue;
    element.title = element.textContent;
    element.textContent = moment(when);
  }
}
showTimes(document);
document.addEventListener("htmx:after:swap", () => showTimes(document));

// A form that acts is sent once, however often its button is clicked: until the next page is there, or
// this one is shown again. A navigation that the person stops is not reported to the page.
const SENT_FOR_MS = 10_000;
let sent = new WeakSet();
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || !form.matches('[method="post"]:not([hx-post])')) return;
  if (sent.has(form)) return event.preventDefault();
  sent.add(form);
  setTimeout(() => sent.delete(form), SENT_FOR_MS);
});
addEventListener("pageshow", () => { sent = new WeakSet(); });

// Alarms, on every page: what is wrong, and what to do
const alarmList = document.getElementById("alarms");
function showAlarms(alarms) {
  for (const element of [...alarmList.children]) {
    if (!alarms.some((alarm) => alarm.name === element.dataset.alarm)) element.remove();
  }
  for (const alarm of alarms) {
    let element = alarmList.querySelector(`[data-alarm="${CSS.escape(alarm.name)}"]`);
    if (!element) {
      element = document.createElement("p");
      element.className = "notice bad";
      element.dataset.alarm = alarm.name;
      const word = document.createElement("span");
      word.className = "state bad";
      word.role = "alert";
      // The figures change every second; only the word is read out.
      const text = document.createElement("span");
      text.className = "grow";
      element.append(word, text);
      alarmList.append(element);
      word.textContent = `${alarm.name} alarm`;
    }
    if (element.lastChild.textContent !== alarm.text) element.lastChild.textContent = alarm.text;
  }
}
overview.listen((state) => showAlarms(at(state, "alarms") ?? []));

// Live state and head figures
const stateElement = document.getElementById("live-state");
const WORDS = {
  live: ["good", "live"],
  paused: ["idle", "paused"],
  connecting: ["idle", "connecting"],
  reconnecting: ["warn", "reconnecting"],
  "broker away": ["bad", "broker away"],
  "signed out": ["bad", "signed out"],
  "not live": ["warn", "not live"],
};
// While nothing new comes, the whole page says of when it is.
const AS_OF_AFTER_MS = 1_500;
const asOf = document.getElementById("as-of");
let asOfTimer = 0;
function showAsOf(lost) {
  clearTimeout(asOfTimer);
  if (!lost) {
    asOf.replaceChildren();
    document.body.classList.remove("lost");
    return;
  }
  asOfTimer = setTimeout(() => {
    const away = live.state === "broker away";
    const notice = document.createElement("p");
    notice.className = "notice bad";
    notice.role = "alert";
    const word = document.createElement("span");
    word.className = "state bad";
    word.textContent = away ? "The broker is away." : "The connection is lost.";
    const text = document.createElement("span");
    text.className = "grow";
    const when = moment(live.lastUpdate || performance.timeOrigin);
    const what = away ? "the broker" : "the connection";
    text.textContent = `Everything on this page is as of ${when}. It is live again when ${what} is back.`;
    notice.append(word, text);
    asOf.replaceChildren(notice);
    document.body.classList.add("lost");
  }, document.body.classList.contains("lost") ? 0 : AS_OF_AFTER_MS);
}

function showState() {
  const [tone, word] = WORDS[live.state];
  stateElement.className = `state ${tone}`;
  stateElement.textContent = word;
  const lost = ["reconnecting", "broker away", "not live"].includes(live.state);
  if (live.state === "live") document.getElementById("full")?.remove();
  showAsOf(lost);
  stateElement.title = lost && live.lastUpdate
    ? `Last update ${timeOfDay(live.lastUpdate)}` : "Whether the numbers on this page are live";
}
live.addEventListener("state", showState);
showState();

function showNotice(id, title, reason) {
  if (document.getElementById(id)) return;
  const notice = document.createElement("p");
  notice.id = id;
  notice.className = "notice warn";
  notice.role = "alert";
  const word = document.createElement("span");
  word.className = "state warn";
  word.textContent = title;
  const text = document.createElement("span");
  text.textContent = reason;
  notice.append(word, text);
  document.getElementById("main").prepend(notice);
}

// What the page showed was deleted, the right to see it was taken away, or its user follows too much
live.addEventListener("ended", ({ detail: { status, reason } }) => {
  if (status === 404) showNotice("ended", "This is gone.", "It was deleted or closed; the numbers are its last ones.");
  else showNotice("ended", status === 429 ? "Not all of this page is live." : "No longer live.", reason);
});

// Too many pages of this user are open; this one tries again now and then
live.addEventListener("full", ({ detail: reason }) => {
  showNotice("full", "Not live.", `${reason}. Close others; this page then updates again.`);
});

for (const name of ["publish", "deliver_get"]) {
  const element = document.querySelector(`[data-head="${name}"]`);
  overview.listen((state) => {
    const text = rate(at(state, `message_stats.${name}_details.rate`) ?? 0);
    if (element.textContent !== text) element.textContent = text;
  });
}

// What was done on the page before, left in a cookie for a few seconds
const left = document.cookie.split("; ").find((cookie) => cookie.startsWith("leveret_toast="));
if (left) {
  document.cookie = "leveret_toast=; max-age=0; path=/; samesite=lax";
  toast(decodeURIComponent(left.slice("leveret_toast=".length)));
}
