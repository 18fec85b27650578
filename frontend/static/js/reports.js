import { ChartCard, pageData } from "./components/chart.js";
import { count, size, timeFormat } from "./components/figures.js";

const history = pageData("history");

const charts = [
  ["chart-messages", [
    { key: "messages_in", label: "in", colour: "series-1" },
    { key: "messages_out", label: "out", colour: "series-2", dash: [6, 3] },
  ], count],
  ["chart-bytes", [
    { key: "bytes_in", label: "in", colour: "series-1" },
    { key: "bytes_out", label: "out", colour: "series-2", dash: [6, 3] },
  ], size],
];

// An hour needs no seconds. The exact time in UTC is in the title.
const hour = timeFormat({ dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });
for (const element of document.querySelectorAll(".report time")) element.textContent = hour(Date.parse(element.dateTime));

// The last hour's step ends where the next hour begins.
if (history.times.length) {
  history.times.push(history.times.at(-1) + history.step_ms);
  for (const values of Object.values(history.series)) values.push(values.at(-1));
}

for (const [id, series, format] of charts) {
  const card = document.getElementById(id);
  if (card) new ChartCard(card, series, format, { stepped: true }).load(history);
}
