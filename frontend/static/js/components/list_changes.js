// Says in a list's heading that rows came or went since it was made; the rows stay where they are
// until one asks for them anew.
//
// The counts come with the overview's pushes, which every page has: nothing more is asked for.

import { at } from "./cells.js";
import { count } from "./figures.js";
import { overview } from "./overview_feed.js";

// Counters since the broker's start, or, where there are none, how many there are now.
const CHURN = {
  queues: ["queue_created", "queue_deleted"],
  connections: ["connection_created", "connection_closed"],
  channels: ["channel_created", "channel_closed"],
};
const SETTLED_MS = 1_500;
const LEVELS = { exchanges: "exchanges", consumers: "consumers" };

function counted(noun, state) {
  if (CHURN[noun]) {
    const [came, went] = CHURN[noun].map((name) => at(state, `churn_rates.${name}`) ?? 0);
    return { came, went };
  }
  return { came: at(state, `object_totals.${LEVELS[noun]}`) ?? 0, went: 0 };
}

function words(before, now) {
  let came = now.came - before.came;
  let went = now.went - before.went;
  // A restart begins the counters anew; a level goes down when something is gone.
  if (came < 0) [came, went] = [0, went - came];
  const parts = [];
  if (came > 0) parts.push(`${count(came)} new`);
  if (went > 0) parts.push(`${count(went)} gone`);
  return parts.join(", ");
}

export function showListChanges() {
  const notice = document.getElementById("list-changes");
  const table = document.getElementById("table");
  if (!notice || !table) return;
  const text = notice.querySelector("span");
  let before = null;
  let state = null;
  let settled = false;
  let timer = 0;

  // The first pushes may be older than the list, and not know of all that it shows.
  function begin() {
    before = null;
    settled = false;
    notice.removeAttribute("data-settled");
    clearTimeout(timer);
    timer = setTimeout(() => {
      settled = true;
      notice.setAttribute("data-settled", "");
    }, SETTLED_MS);
    show();
  }

  function show() {
    const noun = table.querySelector("[data-changes]")?.dataset.changes;
    if (!noun || !(CHURN[noun] || LEVELS[noun]) || !state) return;
    const now = counted(noun, state);
    if (!settled) before = now;
    before ??= now;
    const said = words(before, now);
    if (text.textContent !== said) text.textContent = said;
    notice.hidden = !said;
  }

  overview.listen((newest) => {
    state = newest;
    show();
  });
  begin();
  notice.querySelector("button").addEventListener("click", (event) => {
    htmx.ajax("GET", location.pathname + location.search, { target: "#table", event });
  });
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx?.target?.id !== "table") return;
    begin();
  });
}
