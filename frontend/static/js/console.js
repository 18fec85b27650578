// The console: an AMQP client in the page. It signs in with a single-use ticket of the session.

import { AMQPWebSocketClient } from "../vendor/amqp-websocket-client.mjs";
import { nameElement, size, timeOfDay } from "./components/figures.js";

const ROWS_AT_MOST = 500;
const SHOWN_CHARACTERS = 4000;
const FRAME_MAX = 131_072;

const connectForm = document.getElementById("connect-form");
const connectButton = document.getElementById("connect-button");
const subscribeForm = document.getElementById("subscribe-form");
const publishForm = document.getElementById("publish-form");
const stateElement = document.getElementById("console-state");
const errorElement = document.getElementById("console-error");
const log = document.getElementById("log");
const subscriptions = document.getElementById("subscriptions");

let client = null;
let publishing = null;
let messages = 0;

// The log

function say(kind, mark, parts, body, actions) {
  document.getElementById("log-empty")?.remove();
  const row = document.createElement("li");
  row.className = `log-row ${kind}`;
  const time = span("log-time", timeOfDay(Date.now()));
  const text = span("log-text");
  text.append(...parts);
  const end = span("log-actions");
  if (actions) end.append(...actions);
  row.append(time, span("log-mark", mark), text, end);
  if (body !== undefined) {
    const shown = document.createElement("div");
    shown.className = "log-body";
    shown.dir = "auto";
    shown.textContent = body;
    row.append(shown);
  }
  log.append(row);
  while (log.childElementCount > ROWS_AT_MOST) log.firstElementChild.remove();
  if (document.getElementById("log-follow").checked) log.scrollTop = log.scrollHeight;
  return row;
}

function span(className, text = "") {
  const element = document.createElement("span");
  element.className = className;
  element.textContent = text;
  return element;
}

function key(name) {
  const element = nameElement(name);
  element.classList.add("log-key");
  return element;
}

function button(label, act) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "button small";
  element.textContent = label;
  element.addEventListener("click", act);
  return element;
}

function readable(message) {
  const bytes = message.body ?? new Uint8Array();
  if (!bytes.length) return "(empty)";
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
  } catch {
    const hex = [...bytes.slice(0, 256)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    return bytes.length > 256 ? `${hex} …` : hex;
  }
}

// The connection

function show(tone, word) {
  stateElement.className = `state ${tone}`;
  stateElement.textContent = word;
  const open = word === "open";
  connectButton.textContent = open ? "Disconnect" : "Connect";
  connectButton.disabled = word === "connecting";
  connectButton.classList.toggle("primary", !open);
  for (const element of document.querySelectorAll("[data-needs-connection]")) element.disabled = !open;
}

function fail(error) {
  const text = error?.message ?? String(error?.type === "error" || error?.type === "close" ? "The WebSocket was closed." : error);
  errorElement.textContent = text;
  errorElement.hidden = false;
  say("bad", "■", [text]);
}

async function connect() {
  errorElement.hidden = true;
  show("idle", "connecting");
  const fields = new FormData(connectForm);
  const answer = await fetch(connectForm.dataset.ticket, {
    method: "POST",
    headers: { "X-CSRFToken": fields.get("csrfmiddlewaretoken") },
  });
  if (!answer.ok) throw new Error(`No ticket for the connection: ${answer.status} ${answer.statusText}.`);
  const { user, ticket } = await answer.json();
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  client = new AMQPWebSocketClient({
    url: `${scheme}://${location.host}/ws/amqp`,
    vhost: fields.get("vhost"),
    username: user,
    password: ticket,
    name: "Leveret console",
    frameMax: FRAME_MAX,
    heartbeat: 30,
  });
  const opened = client;
  client.onerror = (error) => { if (client === opened) closed(error); };
  await client.connect();
  publishing = await client.channel();
  publishing.onReturn = (message) => say("bad", "↩",
    ["came back: ", message.replyText ?? "no queue took it", ", key ", key(message.routingKey)]);
  publishing.onerror = (reason) => fail(new Error(reason));
  await publishing.confirmSelect();
  show("good", "open");
  say("", "●", ["connected to ", key(fields.get("vhost")), ` as ${user}`]);
}

function closed(error) {
  if (!client) return;
  client = null;
  publishing = null;
  subscriptions.replaceChildren();
  show("idle", "not connected");
  if (error) fail(error); else say("", "○", ["disconnected"]);
}

connectForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (client) {
    const leaving = client;
    client = null;
    subscriptions.replaceChildren();
    await leaving.close().catch(() => {});
    publishing = null;
    show("idle", "not connected");
    say("", "○", ["disconnected"]);
    return;
  }
  try {
    await connect();
  } catch (error) {
    client = null;
    show("idle", "not connected");
    fail(error);
  }
});

// Subscribing

for (const chooser of subscribeForm.querySelectorAll("[data-source]")) {
  chooser.addEventListener("click", () => {
    for (const other of subscribeForm.querySelectorAll("[data-source]")) other.setAttribute("aria-pressed", String(other === chooser));
    for (const part of subscribeForm.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== chooser.dataset.source;
  });
}

subscribeForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!client) return;
  const fields = new FormData(subscribeForm);
  const fromExchange = subscribeForm.querySelector('[aria-pressed="true"]').dataset.source === "exchange";
  const channel = await client.channel();
  channel.onerror = (reason) => fail(new Error(reason));
  try {
    await channel.prefetch(Number(fields.get("prefetch")) || 20);
    let queue = fields.get("queue");
    let label = queue;
    if (fromExchange) {
      const temporary = await channel.queueDeclare("", { exclusive: true, autoDelete: true, durable: false });
      queue = temporary.name;
      await channel.queueBind(queue, fields.get("exchange"), fields.get("key"));
      label = `${fields.get("exchange")} ${fields.get("key")}`;
    }
    const noAck = fields.get("acknowledge") === null;
    const consumer = await channel.basicConsume(queue, { noAck }, (message) => arrived(message, noAck));
    say("", "+", ["subscribed to ", key(label)]);
    listSubscription(label, consumer, channel);
  } catch (error) {
    fail(error);
    channel.close().catch(() => {});
  }
});

function listSubscription(label, consumer, channel) {
  const item = document.createElement("li");
  item.append(nameElement(label), button("Cancel", async () => {
    item.remove();
    say("", "−", ["cancelled ", key(label)]);
    await consumer.cancel().catch(() => {});
    await channel.close().catch(() => {});
  }));
  subscriptions.append(item);
  consumer.wait().catch(() => {
    // Else it was cancelled or disconnected here.
    if (!item.isConnected) return;
    item.remove();
    // What closed a channel was said by its onerror.
    if (channel.closed) return;
    fail(new Error(`The broker cancelled the subscription to ${label}: its queue was deleted, or an operator did it.`));
  });
}

function arrived(message, noAck) {
  messages += 1;
  document.getElementById("log-count").textContent = `${messages} arrived`;
  const about = ["from ", key(message.exchange || "(default)"), " key ", key(message.routingKey), `, ${size(message.bodySize)}`];
  if (message.redelivered) about.push(", redelivered");
  const row = say("in", "←", about, readable(message), noAck ? [span("log-done", "automatic")] : settleButtons());

  function settleButtons() {
    const settle = (word, act) => async () => {
      try {
        await act();
        row.querySelector(".log-actions").replaceChildren(span("log-done", word));
      } catch (error) {
        fail(error);
      }
    };
    return [
      button("Ack", settle("acknowledged", () => message.ack())),
      button("Reject", settle("rejected", () => message.reject(false))),
      button("Requeue", settle("put back", () => message.reject(true))),
    ];
  }
}

// Publishing

async function publish() {
  if (!client || !publishing) return;
  const fields = new FormData(publishForm);
  const body = fields.get("body").replaceAll("\r\n", "\n");
  const began = performance.now();
  const where = [key(fields.get("exchange") || "(default)"), " key ", key(fields.get("key"))];
  try {
    if (publishing.closed) {
      publishing = await client.channel();
      await publishing.confirmSelect();
    }
    const properties = { deliveryMode: fields.get("persistent") ? 2 : 1, timestamp: new Date() };
    await publishing.basicPublish(fields.get("exchange"), fields.get("key"), body, properties, fields.get("mandatory") !== null);
    say("out", "→", ["published to ", ...where, `, confirmed in ${(performance.now() - began).toFixed(1)} ms`], body || "(empty)");
  } catch (error) {
    fail(error);
  }
}

publishForm.addEventListener("submit", (event) => {
  event.preventDefault();
  publish();
});
publishForm.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) publish();
});

document.getElementById("log-clear").addEventListener("click", () => log.replaceChildren());
addEventListener("pagehide", () => client?.close().catch(() => {}));
