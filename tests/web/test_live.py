"""Live numbers: they change without a reload, and not while nobody looks."""

import json
import signal
from collections.abc import Callable

from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.appliance import Appliance
from tests.disks import SmallDisk
from tests.web.conftest import Watch, cell_of
from tests.web.test_sign_in import sign_in

HIDE = """
Object.defineProperty(document, "hidden", { get: () => window.isHidden, configurable: true });
window.isHidden = %s;
document.dispatchEvent(new Event("visibilitychange"));
"""


def test_a_queues_numbers_follow(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto(f"/queues/%2F/{queue}")
    ready = page.locator('.tile [data-live="messages_ready"]')
    expect(ready).to_have_text("0")
    marked = page.evaluate("window.isTheSamePage = true")
    for number in range(7):
        channel.basic_publish("", queue, str(number).encode())
    expect(ready).to_have_text("7")
    expect(page.locator("h1 [data-trouble]")).to_have_text("not served")
    assert marked and page.evaluate("window.isTheSamePage")


def test_a_lists_rows_follow(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto(f"/queues?q={queue}")
    ready = cell_of(page, "messages_ready")
    expect(ready).to_have_text("0")
    channel.basic_publish("", queue, b"one")
    channel.basic_publish("", queue, b"two")
    expect(ready).to_have_text("2")


def test_the_overview_follows(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto("/")
    for number in range(50):
        channel.basic_publish("", queue, str(number).encode())
    expect(page.locator("#problems")).to_contain_text(queue)
    expect(page.locator("#chart-depth canvas")).to_be_visible()


def test_a_hidden_page_asks_for_nothing(page: Page, queue: str) -> None:
    sent: list[dict[str, object]] = []
    page.on(
        "websocket",
        lambda socket: socket.on("framesent", lambda frame: sent.append(json.loads(frame))),
    )
    page.goto(f"/queues/%2F/{queue}")
    expect(page.locator("#live-state")).to_have_text("live")
    page.evaluate(HIDE % "true")
    expect(page.locator("#live-state")).to_have_text("paused")
    started = {message["id"] for message in sent if message["type"] == "subscribe"}
    stopped = {message["id"] for message in sent if message["type"] == "unsubscribe"}
    assert started and started == stopped
    page.evaluate(HIDE % "false")
    expect(page.locator("#live-state")).to_have_text("live")


def test_a_page_says_that_what_it_showed_is_gone(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    page.goto(f"/queues/%2F/{queue}")
    expect(page.locator("#live-state")).to_have_text("live")
    channel.queue_delete(queue)
    expect(page.get_by_role("alert")).to_contain_text("This is gone.")


def test_a_page_comes_back_after_the_broker_was_away(
    make_leveret: Callable[..., Appliance], make_page: Callable[..., Page], watch: Watch
) -> None:
    leveret = make_leveret()
    page = make_page()
    page.goto(f"{leveret.http_url}/login")
    sign_in(page)
    expect(page.locator("#live-state")).to_have_text("live")
    leveret.signal(signal.SIGKILL, "broker")
    expect(page.locator("#live-state")).to_have_text("broker away")
    expect(page.locator("#live-state")).to_have_text("live", timeout=30_000)


def test_a_connection_on_which_nothing_comes_is_not_called_live(
    make_leveret: Callable[..., Appliance], make_page: Callable[..., Page]
) -> None:
    leveret = make_leveret()
    page = make_page()
    page.goto(f"{leveret.http_url}/login")
    sign_in(page)
    state = page.locator("#live-state")
    expect(state).to_have_text("live")
    # The socket stays open, as after a router between has forgotten it.
    leveret.signal(signal.SIGSTOP, "web")
    try:
        expect(state).to_have_text("reconnecting")
        expect(page.locator("#as-of")).to_contain_text("The connection is lost.")
    finally:
        leveret.signal(signal.SIGCONT, "web")
    expect(state).to_have_text("live")
    expect(page.locator("#as-of")).to_be_empty()


def test_a_dead_connection_is_replaced_while_the_old_one_stays_open(page: Page) -> None:
    opened: list[WebSocketRoute] = []
    is_dead: list[bool] = []

    def relay(page_side: WebSocketRoute) -> None:
        """The first connection falls silent, and is never closed."""
        opened.append(page_side)
        number, server = len(opened), page_side.connect_to_server()
        server.on_message(lambda push: None if number == 1 and is_dead else page_side.send(push))

    page.route_web_socket("**/live/", relay)
    page.goto("/")
    state = page.locator("#live-state")
    expect(state).to_have_text("live")
    is_dead.append(True)
    expect(state).to_have_text("reconnecting")
    expect(state).to_have_text("live")
    assert len(opened) == 2


def test_a_hidden_page_does_not_wait_for_pushes(page: Page, queue: str) -> None:
    page.clock.install()
    page.goto(f"/queues/%2F/{queue}")
    state = page.locator("#live-state")
    expect(state).to_have_text("live")
    page.evaluate(HIDE % "true")
    expect(state).to_have_text("paused")
    page.clock.run_for(30_000)
    expect(state).to_have_text("paused")


def test_figures_are_written_the_same_on_both_sides(page: Page) -> None:
    from frontend import figures

    page.goto("/")
    module = page.locator("script[type=module]").first.get_attribute("src")
    numbers = [
        0,
        0.004,
        0.03,
        1,
        1.5,
        9.994,
        9.995,
        12.34,
        99.94,
        118,
        999,
        1023,
        1024,
        9_999,
        10_500,
    ]
    numbers += [99_999, 100_000, 1_234_567, 5_880_000, 2**40, 3_600, 7_199, 90_000, 172_800]
    for name in ("count", "channels", "consumers", "rate", "net", "size", "duration"):
        written = page.evaluate(
            "async ([module, name, numbers]) => numbers.map((await import(module))[name])",
            [module, name, numbers],
        )
        assert written == [getattr(figures, name)(number) for number in numbers], name


def test_every_page_shows_an_alarm_while_it_is_in_force(
    make_leveret: Callable[..., Appliance],
    make_page: Callable[..., Page],
    small_disk: SmallDisk,
) -> None:
    leveret = make_leveret(data_dir=small_disk.path / "data", disk_free_limit=16 << 20)
    page = make_page()
    page.goto(f"{leveret.http_url}/login")
    sign_in(page)
    alarm = page.locator('#alarms [data-alarm="disk"]')
    for path in ("/", "/queues", "/node"):
        page.goto(f"{leveret.http_url}{path}")
        expect(page.locator("#live-state")).to_have_text("live")
        expect(alarm).to_have_count(0)
        small_disk.fill(leave=8 << 20)
        expect(alarm).to_contain_text("disk alarm")
        expect(alarm).to_contain_text("Free disk space or drain queues")
        small_disk.clear()
        expect(alarm).to_have_count(0)
    # A page that is left open complains when its live connection is refused.
    page.close()
    leveret.close()


def test_a_page_says_that_too_many_of_its_user_are_open(
    make_leveret: Callable[..., Appliance], make_page: Callable[..., Page]
) -> None:
    leveret = make_leveret(live_user_sockets_max=1, live_user_subscriptions_max=8)
    first = make_page()
    first.goto(f"{leveret.http_url}/login")
    sign_in(first)
    expect(first.locator("#live-state")).to_have_text("live")
    second = first.context.new_page()
    second.goto(leveret.http_url)
    expect(second.locator("#live-state")).to_have_text("not live")
    expect(second.get_by_role("alert")).to_contain_text("at most 1")
    first.close()
    second.reload()
    expect(second.locator("#live-state")).to_have_text("live")
    expect(second.get_by_role("alert")).to_have_count(0)
