"""The JavaScript client in a real browser, through the web port: the recipes that pages use."""

import uuid
from typing import Any

from playwright.sync_api import Page

CONNECTED = """async (name) => {
  const script = document.querySelector('script[src*="console"]').src;
  const module = new URL("../vendor/amqp-websocket-client.mjs", script).href;
  const { AMQPWebSocketClient } = await import(module);
  const client = new AMQPWebSocketClient(
    { url: `ws://${location.host}/any/path`, vhost: "/", username: "guest", password: "guest" });
  const connection = await client.connect();
  const channel = await connection.channel();
  await channel.confirmSelect();
  const taken = async (queue, count, settle, args = {}) => {
    const found = [];
    await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error(`${found.length} of ${count} came`)), 15000);
      channel.basicConsume(queue, { noAck: false, args }, async (message) => {
        found.push(message);
        await settle(message, found.length);
        if (found.length === count) { await message.cancelConsumer(); resolve(); }
      });
    });
    return found;
  };
  try {
    %s
  } finally {
    await connection.close();
  }
}"""


def run(page: Page, script: str) -> Any:
    """What the script returns; it has `channel`, `taken` and a `name` of its own."""
    page.goto("/console")
    return page.evaluate(CONNECTED % script, f"browser.{uuid.uuid4().hex[:12]}")


def test_a_browser_tries_again_and_parks_what_fails(page: Page) -> None:
    result = run(
        page,
        """
        const wait = `${name}.wait`;
        await channel.queueDeclare(name, {}, {
          "x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait });
        await channel.queueDeclare(wait, {}, { "x-message-ttl": 30,
          "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name });
        await channel.basicPublish("", name, "again", { deliveryMode: 2 });
        const attempts = await taken(name, 3, (message, attempt) =>
          attempt < 3 ? message.reject(false) : message.ack());
        const deaths = attempts[2].properties.headers["x-death"];
        await channel.queueDelete(name);
        await channel.queueDelete(wait);
        return deaths.map((each) => [each.queue === name, each.reason, Number(each.count)]);
        """,
    )
    assert sorted(result) == [[False, "expired", 2], [True, "rejected", 2]]


def test_a_browser_sees_priorities_delays_and_no_duplicates(page: Page) -> None:
    result = run(
        page,
        """
        await channel.queueDeclare(name, {}, {
          "x-max-priority": 5, "x-message-deduplication": true, "x-cache-size": 10 });
        const kind = { "x-delayed-type": "fanout" };
        await channel.exchangeDeclare(name, "x-delayed-message", {}, kind);
        await channel.queueBind(name, name, "");
        for (const [body, priority] of [["low", 1], ["high", 5], ["low", 1]])
          await channel.basicPublish("", name, body, { priority,
            headers: { "x-deduplication-header": body } });
        await channel.basicPublish(name, "", "late", { headers: { "x-delay": 100 } });
        await channel.basicQos(1);
        const found = await taken(name, 3, (message) => message.ack());
        await channel.queueDelete(name);
        await channel.exchangeDelete(name);
        return found.map((message) => message.bodyString());
        """,
    )
    assert result == ["high", "low", "late"]


def test_a_browser_asks_and_is_answered(page: Page) -> None:
    result = run(
        page,
        """
        await channel.queueDeclare(name, { autoDelete: true });
        const answer = new Promise((resolve) => channel.basicConsume(
          "amq.rabbitmq.reply-to", { noAck: true }, (message) => resolve(message.bodyString())));
        await channel.basicConsume(name, { noAck: false }, async (message) => {
          await channel.basicPublish(
            "", message.properties.replyTo, `${message.bodyString()}!`);
          await message.ack();
        });
        await channel.basicPublish("", name, "hello", { replyTo: "amq.rabbitmq.reply-to" });
        return await answer;
        """,
    )
    assert result == "hello!"


def test_a_browser_reads_a_stream_from_where_it_likes(page: Page) -> None:
    result = run(
        page,
        """
        await channel.queueDeclare(name, { durable: true }, { "x-queue-type": "stream" });
        for (let number = 0; number < 6; number++)
          await channel.basicPublish("", name, `${number}`);
        await channel.basicQos(10);
        const found = await taken(name, 3, (message) => message.ack(), { "x-stream-offset": 3 });
        await channel.queueDelete(name);
        return found.map((message) =>
          [message.bodyString(), Number(message.properties.headers["x-stream-offset"])]);
        """,
    )
    assert result == [["3", 3], ["4", 4], ["5", 5]]
