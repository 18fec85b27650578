// The broker's log as it is written: new lines come on top; only as many stay as the broker keeps.

import { pageData } from "./components/chart.js";
import { moment } from "./components/figures.js";

const TONES = { critical: "bad", error: "bad", warning: "warn" };
const lines = document.getElementById("log-lines");
const state = document.getElementById("log-state");
const filter = document.getElementById("log-filter");
const worse = document.getElementById("log-worse");
const kept = pageData("kept");

function show(row) {
  const wanted = filter.value.toLowerCase();
  row.hidden = (worse.checked && !(row.dataset.level in TONES)) || !row.textContent.toLowerCase().includes(wanted);
}

function showAll() {
  for (const row of lines.rows) show(row);
}

filter.addEventListener("input", showAll);
worse.addEventListener("change", showAll);

function cell(row, content, name) {
  const made = row.insertCell();
  made.className = name;
  made.append(content);
}

function add(id, [level, source, text]) {
  const row = lines.insertRow(0);
  row.dataset.level = level;
  const time = document.createElement("time");
  time.textContent = moment(Math.floor(id / 1000));
  cell(row, time, "");
  let word = level;
  if (level in TONES) {
    word = document.createElement("span");
    word.className = `state ${TONES[level]}`;
    word.textContent = level;
  }
  cell(row, word, "");
  cell(row, source, "wide mono");
  const line = document.createElement("bdi");
  line.textContent = text;
  cell(row, line, "mono");
  show(row);
  while (lines.rows.length > kept) lines.deleteRow(-1);
}

const events = new EventSource(`/api/livelog?after=${pageData("newest")}`);
events.onopen = () => {
  state.className = "state good";
  state.textContent = "live";
};
events.onerror = () => {
  state.className = "state warn";
  state.textContent = events.readyState === EventSource.CLOSED ? "not live: reload the page" : "connecting again";
};
events.onmessage = (event) => add(Number(event.lastEventId), JSON.parse(event.data));
addEventListener("pagehide", () => events.close());
