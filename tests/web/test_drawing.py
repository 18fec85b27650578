"""What a page draws: what changed, at once, and nothing where nothing did."""

from __future__ import annotations

import re
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, Route, expect

# A chart of its own on the page, pushed by hand, one second after the other; counts drawings.
CHART = """async (base) => {
  const { ChartCard } = await import(base);
  const card = document.getElementById("chart-depth").cloneNode(true);
  card.querySelector(".chart").replaceChildren();
  card.querySelector(".chart-keys").replaceChildren();
  document.getElementById("main").prepend(card);
  const chart = new ChartCard(card, [{ key: "a", label: "a", colour: "series-1" }], String);
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  let now = 1_700_000_000_000;
  chart.load({ times: [now - 1000, now], series: { a: [1, 1] }, step_ms: 1000, span_s: 900 });
  await frame();
  await frame();
  let drawn = 0;
  const clear = CanvasRenderingContext2D.prototype.clearRect;
  const canvas = card.querySelector("canvas");
  CanvasRenderingContext2D.prototype.clearRect = function (...area) {
    if (this.canvas === canvas) drawn += 1;
    return clear.apply(this, area);
  };
  window.push = async (values) => {
    drawn = 0;
    for (const value of values) {
      now += 1000;
      chart.push(now, () => value);
      await frame();
    }
    await frame();
    return drawn;
  };
}"""

# What changes on the page from one push to the next; elements that did not change are not touched.
CELLS = """async ([base, states]) => {
  const { Cells, Spark } = await import(base);
  // A copy: the page updates its own tile meanwhile.
  const tile = document.querySelector("#tiles .tile").cloneNode(true);
  document.getElementById("main").prepend(tile);
  const path = tile.querySelector("[data-live]").dataset.live;
  const cells = new Cells(tile);
  const spark = new Spark(tile.querySelector("[data-spark]"), Array(60).fill(7));
  let touched = 0;
  const options = { subtree: true, attributes: true, childList: true, characterData: true };
  const observer = new MutationObserver((records) => { touched += records.length; });
  cells.update({ [path]: 7 });
  spark.push(7);
  observer.observe(tile, options);
  const found = [];
  for (const state of states) {
    cells.update({ [path]: state });
    spark.push(state);
    await new Promise((done) => setTimeout(done));
    found.push(touched > 0);
    touched = 0;
  }
  observer.disconnect();
  return found;
}"""


def base_of(page: Page) -> Any:
    return page.locator("script[type=module]").first.get_attribute("src")


def test_a_chart_whose_lines_stay_level_is_drawn_now_and_then(page: Page) -> None:
    page.goto("/")
    page.evaluate(CHART, base_of(page))
    assert page.evaluate("() => push([1, 1, 1, 1])") == 0
    assert page.evaluate("() => push([1, 1, 1])") == 1
    assert page.evaluate("() => push([2, 3])") == 2


def test_a_chart_moves_back_to_level_at_once(page: Page) -> None:
    page.goto("/")
    page.evaluate(CHART, base_of(page))
    assert page.evaluate("() => push([5, 1])") == 2


def test_values_that_read_as_before_are_not_touched(page: Page) -> None:
    page.goto("/")
    found = page.evaluate(CELLS, [base_of(page), [7, 7, 7.0001, 8, 8, 7]])
    assert found == [False, False, False, True, True, True]


def test_a_chart_shown_as_a_table_follows(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto(f"/queues/%2F/{queue}")
    chart = page.locator("#chart-depth")
    chart.locator("[data-table-toggle]").click()
    newest = chart.locator(".chart-table tbody tr").first
    expect(newest.locator("td").nth(1)).to_have_text("0")
    for number in range(3):
        channel.basic_publish("", queue, str(number).encode())
    expect(newest.locator("td").nth(1)).to_have_text("3")
    expect(chart.locator(".chart-key b").first).to_have_text("3")


# Counts the attributes of the table's rows that scripts set, and the searches that look at all of
# them: by an XPath (which makes a node of each attribute) or element by element.
WATCH_ROWS = """
globalThis.touched = 0;
globalThis.searched = 0;
const ROWS = "#table tbody";
new MutationObserver((records) => {
  touched += records.filter((record) => record.target.closest(ROWS)).length;
}).observe(document, { subtree: true, attributes: true });
const note = (node) => {
  const rows = document.querySelector(ROWS);
  if (rows && (node.contains(rows) || rows.contains(node))) searched += 1;
};
for (const [type, place] of [[Document, 1], [XPathEvaluator, 1], [XPathExpression, 0]]) {
  const { evaluate } = type.prototype;
  type.prototype.evaluate = function (...given) {
    note(given[place]);
    return evaluate.apply(this, given);
  };
}
const { get } = Object.getOwnPropertyDescriptor(Element.prototype, "attributes");
Object.defineProperty(Element.prototype, "attributes", {
  get() {
    note(this);
    return get.call(this);
  },
});
"""


def test_scripts_leave_the_rows_of_a_list_as_they_came(page: Page, queue: str) -> None:
    """A list has thousands of attributes: a search through each of them takes longer than all other
    scripts, and one set on each row would have every cell styled again."""
    page.add_init_script(WATCH_ROWS)
    page.goto("/queues", wait_until="load")
    expect(page.locator("#live-state")).to_have_text("live")
    assert page.evaluate("() => [touched, searched]") == [0, 0]


def test_the_rows_are_left_alone_when_htmx_begins_before_the_pages_own_scripts(
    page: Page, queue: str
) -> None:
    waiting: list[Route] = []
    page.add_init_script(WATCH_ROWS)
    page.route("**/js/base.js", lambda route: waiting.append(route))
    page.goto("/queues", wait_until="commit")
    page.wait_for_function("() => globalThis.htmx && document.readyState !== 'loading'")
    # Behind htmx's own timer.
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    (route,) = waiting
    route.continue_()
    expect(page.locator("#live-state")).to_have_text("live")
    assert page.evaluate("() => [touched, searched]") == [0, 0]
    page.locator("#filter input[name=q]").fill(queue)
    expect(page).to_have_url(re.compile(f"q={re.escape(queue)}"))
