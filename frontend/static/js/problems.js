// The page of all problems: its lines are fetched again when the overview's first ones or the count
// change, at most every few seconds, and never under the pointer or the focus.

import { overview } from "./components/overview_feed.js";

const REFRESH_MS = 5_000;

const list = document.getElementById("problem-list");
let known = null;
let due = false;
let timer = 0;

async function refresh() {
  timer = 0;
  if (!due || document.hidden) return;
  if (list.matches(":hover, :focus-within")) {
    timer = setTimeout(refresh, REFRESH_MS);
    return;
  }
  due = false;
  const before = list.firstElementChild;
  await htmx.ajax("GET", list.querySelector("[data-here]").dataset.here, { target: "#problem-list" });
  // A request that failed has left the lines as they were.
  due ||= list.firstElementChild === before;
  timer = setTimeout(refresh, REFRESH_MS);
}

overview.listen((state) => {
  const now = JSON.stringify([state.problem_count, state.problem_lines, state.problems]);
  if (known !== null && now !== known) {
    due = true;
    timer ||= setTimeout(refresh, 0);
  }
  known = now;
});
