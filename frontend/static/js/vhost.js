import { Cells, taken } from "./components/cells.js";
import { pageData } from "./components/chart.js";
import { live } from "./components/live.js";
import { totalsCharts } from "./components/totals.js";

const cells = new Cells(document);
const charts = totalsCharts(pageData("history"));
let state = null;
live.subscribe(pageData("vhost-follow"), (event, data, time) => {
  state = taken(state, event, data);
  cells.update(state);
  charts.push(time, state);
});
