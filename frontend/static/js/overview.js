import { connectionAddress, queueAddress } from "./components/addresses.js";
import { Cells, at } from "./components/cells.js";
import { pageData } from "./components/chart.js";
import { count, nameElement, net, rate } from "./components/figures.js";
import { overview } from "./components/overview_feed.js";
import { Spark } from "./components/sparks.js";
import { problemLine } from "./components/problems.js";
import { totalsCharts } from "./components/totals.js";

const PATHS = {
  publish: "message_stats.publish_details.rate",
  deliver_get: "message_stats.deliver_get_details.rate",
  messages_ready: "queue_totals.messages_ready",
  messages_unacknowledged: "queue_totals.messages_unacknowledged",
  connections: "object_totals.connections",
  queues: "object_totals.queues",
};

const history = pageData("history");
const charts = totalsCharts(history);
const cells = new Cells(document.getElementById("tiles"));
const sparks = [...document.querySelectorAll("[data-spark]")]
  .map((svg) => [svg.dataset.spark, new Spark(svg, history.series[svg.dataset.spark] ?? [])]);

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function link(address, name) {
  const made = element("a", "", nameElement(name));
  made.href = address;
  return made;
}

function showProblems(state) {
  const tone = at(state, "health.state");
  const word = document.getElementById("health-state");
  word.className = `state ${tone === "fine" ? "good" : tone}`;
  word.textContent = at(state, "health.text");
  const problems = state.problems ?? [];
  document.getElementById("problems").replaceChildren(...problems.map(problemLine));
  const lines = state.problem_lines ?? 0;
  document.getElementById("all-problems").hidden = lines <= problems.length;
  document.getElementById("problem-lines").textContent = count(lines);
  const urgent = state.problem_count ?? 0;
  document.title = `${urgent ? `▲ ${count(urgent)} · ` : ""}Overview · Leveret`;
}

function hint(name) {
  const made = nameElement(name);
  made.classList.add("hint");
  return made;
}

function row(first, ...numbers) {
  const head = element("th", "name-cell", ...first);
  head.scope = "row";
  return element("tr", "", head, ...numbers.map((text) => element("td", "number", text)));
}

function growingRow({ vhost, name, messages, net_rate: change }) {
  return row([link(queueAddress(vhost, name), name), " ", hint(vhost)], count(messages), `${net(change)}/s`);
}

function publisherRow({ connection, user_provided_name: given, user, publish_rate: published }) {
  const name = given || connection;
  return row([link(connectionAddress(connection), name), " ", hint(user)], `${rate(published)}/s`);
}

function showMovers(id, rows) {
  document.getElementById(id).replaceChildren(...rows);
  document.getElementById(`${id}-none`).hidden = rows.length > 0;
}

let shown = {};
overview.listen((state, event, time) => {
  cells.update(state);
  for (const [name, spark] of sparks) spark.push(at(state, PATHS[name]));
  charts.push(time, state);
  const parts = {
    problems: state.problems,
    health: at(state, "health.text"),
    lines: state.problem_lines,
    queues: state.top_queues,
    publishers: state.top_publishers,
  };
  if (["problems", "health", "lines"].some((part) => parts[part] !== shown[part])) showProblems(state);
  if (parts.queues !== shown.queues) showMovers("top-queues", (parts.queues ?? []).map(growingRow));
  if (parts.publishers !== shown.publishers) {
    showMovers("top-publishers", (parts.publishers ?? []).map(publisherRow));
  }
  shown = parts;
});
