import { Cells, at, taken } from "./components/cells.js";
import { ChartCard, pageData } from "./components/chart.js";
import { rate } from "./components/figures.js";
import { live } from "./components/live.js";

const cells = new Cells(document);
const chart = new ChartCard(document.getElementById("chart-rates"), [
  { key: "publish_in", label: "published to it", colour: "series-1" },
  { key: "publish_out", label: "on to queues", colour: "series-2", dash: [6, 3] },
], rate);
chart.load(pageData("history"));

let state = null;
live.subscribe({ topic: "item", noun: "exchanges", key: pageData("exchange-key") }, (event, data, time) => {
  state = taken(state, event, data);
  cells.update(state);
  chart.push(time, (name) => at(state, `message_stats.${name}_details.rate`) ?? 0);
});
