import { Cells, at, taken } from "./components/cells.js";
import { ChartCard } from "./components/chart.js";
import { count, rate } from "./components/figures.js";
import { live } from "./components/live.js";
import { Spark } from "./components/sparks.js";
import { liveTable } from "./components/table.js";
import { showTrouble } from "./components/troubles.js";

const key = JSON.parse(document.getElementById("queue-key").textContent);
const meanings = JSON.parse(document.getElementById("trouble-meanings").textContent);
const historyElement = document.getElementById("history");
const history = historyElement && JSON.parse(historyElement.textContent);
const cells = new Cells(document);
const meaning = document.querySelector("[data-trouble-meaning]");
const heading = document.querySelector("h1");
const PATHS = {
  messages_ready: "messages_ready",
  messages_unacknowledged: "messages_unacknowledged",
  publish: "message_stats.publish_details.rate",
  deliver_get: "message_stats.deliver_get_details.rate",
  ack: "message_stats.ack_details.rate",
  redeliver: "message_stats.redeliver_details.rate",
};

const sparks = [];
const charts = [];
if (history) {
  for (const svg of document.querySelectorAll("[data-spark]")) {
    const name = svg.dataset.spark;
    if (PATHS[name]) sparks.push([name, new Spark(svg, history.series[name] ?? [])]);
  }
  // Nothing leaves a stream by being read, and nothing comes back.
  const isStream = document.querySelector("[data-stream]") !== null;
  const ready = { key: "messages_ready", label: "ready", colour: "series-1", fill: true };
  const unacknowledged = {
    key: "messages_unacknowledged", label: "unacknowledged", colour: "series-4", fill: true,
  };
  const publish = { key: "publish", label: "publish", colour: "series-1" };
  const ack = { key: "ack", label: "ack", colour: "series-3" };
  const deliver = { key: "deliver_get", label: "deliver", colour: "series-2", dash: [6, 3] };
  const redeliver = { key: "redeliver", label: "redeliver", colour: "series-4", dash: [2, 3] };
  charts.push(
    new ChartCard(
      document.getElementById("chart-depth"),
      isStream ? [{ ...ready, label: "kept" }] : [ready, unacknowledged],
      count,
    ),
    new ChartCard(
      document.getElementById("chart-rates"),
      isStream
        ? [publish, ack, { ...deliver, label: "read" }]
        : [publish, ack, deliver, redeliver],
      rate,
    ),
  );
  for (const chart of charts) chart.load(history);
}

// Why publishes are refused, and whose: requested again while they are.
const REFUSALS_MS = 5_000;
const refusals = document.getElementById("refusals");
let refusalsAt = Date.now();
function showRefusals(trouble) {
  if (trouble !== "refusing" && !refusals.firstElementChild) return;
  if (Date.now() - refusalsAt < REFUSALS_MS && refusals.firstElementChild) return;
  if (refusals.matches(":hover, :focus-within")) return;
  refusalsAt = Date.now();
  const query = new URLSearchParams({ vhost: key[0], name: key[1], part: "refusals" });
  htmx.ajax("GET", `/queue?${query}`, { target: "#refusals" });
}

if (document.querySelector("#table table[data-noun=consumers]")) liveTable(showTrouble);

let state = null;
live.subscribe({ topic: "item", noun: "queues", key }, (event, data, time) => {
  state = taken(state, event, data);
  const read = (name) => at(state, PATHS[name]);
  cells.update(state);
  showTrouble(heading, state);
  showRefusals(state.trouble);
  meaning.textContent = meanings[state.trouble] ? `${meanings[state.trouble]}.` : "";
  for (const [name, spark] of sparks) spark.push(read(name));
  for (const chart of charts) chart.push(time, read);
});
