import { Cells, at, taken } from "./components/cells.js";
import { ChartCard, pageData } from "./components/chart.js";
import { size } from "./components/figures.js";
import { showConnectionState } from "./components/connections.js";
import { live } from "./components/live.js";
import { liveTable } from "./components/table.js";

const cells = new Cells(document);
const heading = document.querySelector("h1");
const chart = new ChartCard(document.getElementById("chart-bytes"), [
  { key: "recv_oct", label: "received", colour: "series-1" },
  { key: "send_oct", label: "sent", colour: "series-2", dash: [6, 3] },
], size);
chart.load(pageData("history"));

liveTable();

let state = null;
live.subscribe({ topic: "item", noun: "connections", key: pageData("connection-key") }, (event, data, time) => {
  state = taken(state, event, data);
  cells.update(state);
  showConnectionState(heading, state);
  chart.push(time, (name) => at(state, `${name}_details.rate`) ?? 0);
});
