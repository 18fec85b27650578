// The two charts of totals, of the node and of a virtual host: "How deep?" and "How fast?".

import { at } from "./cells.js";
import { ChartCard } from "./chart.js";
import { count, rate } from "./figures.js";

/** `push(time, state)` adds a point to both; `history` fills them at load. */
export function totalsCharts(history) {
  const depth = new ChartCard(document.getElementById("chart-depth"), [
    { key: "messages_ready", label: "ready", colour: "series-1", fill: true },
    { key: "messages_unacknowledged", label: "unacknowledged", colour: "series-4", fill: true },
  ], count);
  const rates = new ChartCard(document.getElementById("chart-rates"), [
    { key: "publish", label: "publish", colour: "series-1" },
    { key: "ack", label: "ack", colour: "series-3" },
    { key: "deliver_get", label: "deliver", colour: "series-2", dash: [6, 3] },
    { key: "redeliver", label: "redeliver", colour: "series-4", dash: [2, 3] },
  ], rate);
  if (history) {
    depth.load(history);
    rates.load(history);
  }
  return {
    push(time, state) {
      depth.push(time, (name) => at(state, `queue_totals.${name}`) ?? at(state, name));
      rates.push(time, (name) => at(state, `message_stats.${name}_details.rate`) ?? 0);
    },
  };
}
