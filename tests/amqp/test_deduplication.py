"""Message deduplication: what counts as a duplicate, for how long, and over restarts."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.limited_queues import drain, fill, limited, ready, seconds_until
from tests.amqp.raw import Client
from tests.appliance import Appliance

HEADER = "x-deduplication-header"


def once(client: Client, **arguments: Any) -> str:
    """A new queue that drops duplicates."""
    return limited(client, x_message_deduplication=True, **arguments)


def exchange_of(client: Client, **arguments: Any) -> tuple[str, str]:
    """A new fanout exchange that drops duplicates, and a queue bound to it."""
    name = f"once-{uuid.uuid4().hex[:8]}"
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call(
        1,
        "exchange.declare",
        exchange=name,
        type="fanout",
        arguments={"x-message-deduplication": True, **table},
    )
    queue = client.call(1, "queue.declare", exclusive=True).queue
    client.call(1, "queue.bind", queue=queue, exchange=name)
    return name, queue


def send(
    client: Client, exchange: str, key: str, *messages: tuple[bytes, Any], **values: Any
) -> None:
    client.send(
        b"".join(
            raw.publish(1, exchange, key, body, headers={HEADER: id}, **values)
            for body, id in messages
        )
    )
    client.fence(1)


def test_a_queue_drops_what_has_an_id_that_came_before_and_confirms_it(client: Client) -> None:
    queue = once(client)
    for body in (b"1", b"again"):
        assert fill(client, queue, body, headers={HEADER: "a"}) == {1: "basic.ack"}
    assert fill(client, queue, b"2", headers={HEADER: "b"}) == {1: "basic.ack"}
    assert drain(client, queue) == [b"1", b"2"]


def test_a_duplicate_stays_one_after_the_first_was_consumed(client: Client) -> None:
    queue = once(client)
    send(client, "", queue, (b"1", "a"))
    assert drain(client, queue) == [b"1"]
    send(client, "", queue, (b"2", "a"), (b"3", "c"))
    assert drain(client, queue) == [b"3"]


@pytest.mark.parametrize("id", ["a", "é", b"\x00\xff", 0, -5, 2**40, "x" * 5000])
def test_texts_bytes_and_integers_are_ids(client: Client, id: Any) -> None:
    queue = once(client)
    send(client, "", queue, (b"1", id), (b"2", id), (b"3", "other"))
    assert drain(client, queue) == [b"1", b"3"]


@pytest.mark.parametrize("id", [None, True, 1.5, ["a"], {"a": 1}])
def test_what_is_no_id_makes_no_duplicate(client: Client, id: Any) -> None:
    queue = once(client)
    send(client, "", queue, (b"1", id), (b"2", id))
    assert drain(client, queue) == [b"1", b"2"]


def test_a_number_is_not_the_text_of_it(client: Client) -> None:
    queue = once(client)
    send(client, "", queue, (b"1", 5), (b"2", "5"))
    assert drain(client, queue) == [b"1", b"2"]


def test_the_id_may_be_in_another_header(client: Client) -> None:
    queue = once(client, x_deduplication_header="order")
    for body, headers in (
        (b"1", {"order": 1, HEADER: "a"}),
        (b"2", {"order": 2, HEADER: "a"}),
        (b"3", {"order": 1, HEADER: "b"}),
    ):
        fill(client, queue, body, headers=headers)
    assert drain(client, queue) == [b"1", b"2"]


def test_a_header_name_that_no_header_can_have_finds_no_ids(client: Client) -> None:
    queue = once(client, x_deduplication_header="x" * (256 + len(HEADER)))
    send(client, "", queue, (b"1", "a"), (b"2", "a"))
    assert drain(client, queue) == [b"1", b"2"]


def test_the_oldest_id_is_forgotten_first(client: Client) -> None:
    queue = once(client, x_cache_size=2)
    ids = ["a", "b", "c", "b", "a"]
    send(client, "", queue, *((str(n).encode(), id) for n, id in enumerate(ids)))
    assert drain(client, queue) == [b"0", b"1", b"2", b"4"]


def test_128_ids_are_remembered_unless_told_otherwise(client: Client) -> None:
    queue = once(client)
    send(client, "", queue, *((b"%d" % n, n) for n in range(129)))
    send(client, "", queue, (b"first", 0), (b"last", 128))
    assert drain(client, queue)[129:] == [b"first"]


def test_a_cache_of_no_size_drops_nothing(client: Client) -> None:
    queue = once(client, x_cache_size=0)
    send(client, "", queue, (b"1", "a"), (b"2", "a"))
    assert drain(client, queue) == [b"1", b"2"]


def test_ids_are_forgotten_after_their_time(client: Client) -> None:
    queue = once(client, x_cache_ttl=150)
    started = time.monotonic()
    send(client, "", queue, (b"1", "a"), (b"2", "a"))
    count = ready(client, queue)
    if time.monotonic() - started < 0.15:
        assert count == 1

    def is_taken() -> bool:
        send(client, "", queue, (b"3", "a"))
        return ready(client, queue) == 2

    seconds_until(is_taken)
    assert time.monotonic() - started >= 0.149  # the clock counts whole milliseconds


def test_a_message_may_say_how_long_its_id_is_remembered(client: Client) -> None:
    queue = once(client)
    fill(client, queue, b"1", headers={HEADER: "a", "x-cache-ttl": 0})
    fill(client, queue, b"2", headers={HEADER: "a", "x-cache-ttl": 2**63 - 1})
    fill(client, queue, b"3", headers={HEADER: "a", "x-cache-ttl": 0})
    fill(client, queue, b"4", headers={HEADER: "b", "x-cache-ttl": "soon"})
    fill(client, queue, b"5", headers={HEADER: "b"})
    assert drain(client, queue) == [b"1", b"2", b"4"]


def test_what_a_full_queue_refused_is_no_duplicate_when_it_comes_again(client: Client) -> None:
    queue = once(client, x_max_length=1, x_overflow="reject-publish")
    assert fill(client, queue, b"1", headers={HEADER: "a"}) == {1: "basic.ack"}
    assert fill(client, queue, b"2", headers={HEADER: "b"}) == {1: "basic.nack"}
    # A duplicate has its message in the queue already.
    assert fill(client, queue, b"3", headers={HEADER: "a"}) == {1: "basic.ack"}
    assert drain(client, queue) == [b"1"]
    assert fill(client, queue, b"2", headers={HEADER: "b"}) == {1: "basic.ack"}
    assert drain(client, queue) == [b"2"]


def test_a_dead_letter_passes_through_a_queue_that_drops_duplicates(client: Client) -> None:
    target = once(client)
    queue = limited(
        client, x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key=target
    )
    send(client, "", queue, (b"1", "a"), (b"2", "a"))
    seconds_until(lambda: ready(client, target) == 1)
    assert drain(client, target) == [b"1"]


def test_an_exchange_drops_duplicates_for_all_its_queues(client: Client) -> None:
    exchange, queue = exchange_of(client)
    other = client.call(1, "queue.declare", exclusive=True).queue
    client.call(1, "queue.bind", queue=other, exchange=exchange)
    client.call(1, "confirm.select")
    for body, id in ((b"1", "a"), (b"2", "a"), (b"3", "b")):
        client.publish(1, exchange, "", body, headers={HEADER: id}, mandatory=True)
    assert set(client.expect_confirms(1, 3).values()) == {"basic.ack"}
    client.fence(1)
    assert drain(client, queue) == drain(client, other) == [b"1", b"3"]


def test_the_exchange_reads_its_own_arguments(client: Client) -> None:
    exchange, queue = exchange_of(client, x_cache_size=1)
    send(client, exchange, "", (b"1", "a"), (b"2", "b"), (b"3", "a"), (b"4", "a"))
    assert drain(client, queue) == [b"1", b"2", b"3"]
    exchange, queue = exchange_of(client, x_cache_ttl=0)
    send(client, exchange, "", (b"1", "a"), (b"2", "a"))
    assert drain(client, queue) == [b"1", b"2"]
    exchange, queue = exchange_of(client, x_deduplication_header="order")
    for body, order in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
        client.publish(1, exchange, "", body, headers={HEADER: "same", "order": order})
    client.fence(1)
    assert drain(client, queue) == [b"1", b"2"]


def test_what_had_no_queue_is_no_duplicate_when_it_comes_again(client: Client) -> None:
    exchange, queue = exchange_of(client)
    client.call(1, "queue.unbind", queue=queue, exchange=exchange)
    send(client, exchange, "", (b"1", "a"))
    client.call(1, "queue.bind", queue=queue, exchange=exchange)
    send(client, exchange, "", (b"2", "a"), (b"3", "a"))
    assert drain(client, queue) == [b"2"]


@pytest.mark.parametrize("confirms", [True, False])
def test_what_a_queue_behind_it_refused_is_no_duplicate(client: Client, confirms: bool) -> None:
    exchange, _ = exchange_of(client)
    full = limited(client, x_max_length=1, x_overflow="reject-publish")
    client.call(1, "queue.bind", queue=full, exchange=exchange)
    if confirms:
        client.call(1, "confirm.select")
    client.publish(1, exchange, "", b"1", headers={HEADER: "a"})
    client.publish(1, exchange, "", b"2", headers={HEADER: "b"})
    if confirms:
        assert client.expect_confirms(1, 2)[2] == "basic.nack"
    assert drain(client, full) == [b"1"]
    client.publish(1, exchange, "", b"2", headers={HEADER: "b"})
    if confirms:
        client.expect_confirms(1, 3, 3)
    assert drain(client, full) == [b"2"]


def test_transactions_drop_duplicates_too(client: Client) -> None:
    exchange, queue = exchange_of(client)
    client.call(1, "tx.select")
    send(client, exchange, "", (b"rolled back", "a"))
    client.call(1, "tx.rollback")
    send(client, exchange, "", (b"1", "a"), (b"2", "a"))
    client.call(1, "tx.commit")
    assert drain(client, queue) == [b"1"]


def test_a_delayed_message_is_a_duplicate_while_it_waits(client: Client) -> None:
    exchange, queue = exchange_of(client, x_delayed_exchange=True)
    headers = {HEADER: "a", "x-delay": 30}
    client.publish(1, exchange, "", b"1", headers=headers)
    client.publish(1, exchange, "", b"2", headers=headers)
    client.publish(1, exchange, "", b"3", headers={HEADER: "b", "x-delay": 31})
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    assert [m.body for m in client.expect_messages(2, 1)] == [b"1", b"3"]


@pytest.mark.parametrize("owner", ["queue", "exchange"])
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-message-deduplication", "yes"),
        ("x-message-deduplication", 1),
        ("x-cache-size", -1),
        ("x-cache-size", "many"),
        ("x-cache-size", 1_000_001),
        ("x-cache-ttl", -1),
        ("x-cache-ttl", "long"),
        ("x-deduplication-header", 5),
    ],
)
def test_bad_values_are_refused(
    client: Client, name: str, owner: str, argument: str, value: Any
) -> None:
    fields = {"queue": name} if owner == "queue" else {"exchange": name, "type": "fanout"}
    client.send_method(1, f"{owner}.declare", arguments={argument: value}, **fields)
    class_id = 50 if owner == "queue" else 40
    client.expect_channel_close(1, 406, class_id, 10, argument)


def test_a_stream_cannot_drop_duplicates(client: Client, name: str) -> None:
    client.send_method(
        1,
        "queue.declare",
        queue=name,
        durable=True,
        arguments={"x-queue-type": "stream", "x-message-deduplication": True},
    )
    client.expect_channel_close(1, 406, 50, 10, "x-message-deduplication")


def test_false_means_that_nothing_is_dropped(client: Client) -> None:
    queue = limited(client, x_message_deduplication=False, x_cache_size=5)
    send(client, "", queue, (b"1", "a"), (b"2", "a"))
    assert drain(client, queue) == [b"1", b"2"]


def declare_durable(client: Client, **arguments: Any) -> None:
    """A queue and an exchange that drop duplicates, a plain queue bound to it; confirms are on."""
    table = {"x-message-deduplication": True, **arguments}
    client.call(1, "queue.declare", queue="once", durable=True, arguments=table)
    client.call(
        1, "exchange.declare", exchange="once", type="fanout", durable=True, arguments=table
    )
    client.call(1, "queue.declare", queue="behind", durable=True)
    client.call(1, "queue.bind", queue="behind", exchange="once")
    client.call(1, "confirm.select")


def confirmed(client: Client, first: int, ids: range) -> None:
    """To the queue and to the exchange, a persistent message of each id; the first has tag
    `first`."""
    client.send(
        b"".join(
            raw.publish(
                1, exchange, "once", b"%d" % id, headers={HEADER: f"id {id}"}, delivery_mode=2
            )
            for id in ids
            for exchange in ("", "once")
        )
    )
    client.expect_confirms(1, first + 2 * len(ids) - 1, first)


@pytest.mark.parametrize("how", ["stop", "kill", "kill, ids lost"])
def test_ids_survive_a_restart(make_broker: Callable[..., Appliance], how: str) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        declare_durable(client)
        confirmed(client, 1, range(100))
        # Consumed messages are remembered as well.
        client.get(1, "once", no_ack=True)
        client.get(1, "behind", no_ack=True)
        broker.stop() if how == "stop" else broker.kill()
    kept = [b"%d" % n for n in range(1, 101)]
    if how == "kill, ids lost":
        # As if the crash came between the messages and their ids: the queue's own messages tell.
        vhost = next((broker.data_dir / "vhosts").iterdir())
        for path in (vhost / "deduplication").rglob("ids.*"):
            path.unlink()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        confirmed(client, 1, range(101))
        assert sorted(drain(client, "once"), key=int) == kept
        if how != "kill, ids lost":
            assert sorted(drain(client, "behind"), key=int) == kept


@pytest.mark.parametrize("is_torn", [False, True])
def test_ids_survive_several_restarts(
    make_broker: Callable[..., Appliance], *, is_torn: bool
) -> None:
    """A crash that tears the last entry of a file makes the next start begin another one."""
    broker = make_broker()
    directory = next((broker.data_dir / "vhosts").iterdir()) / "deduplication"
    with Client.open((broker.host, broker.amqp_port)) as client:
        declare_durable(client)
        confirmed(client, 1, range(100))
    for restart in range(4):
        broker.kill()
        if is_torn:
            for each in directory.iterdir():
                with max(each.iterdir()).open("ab") as newest:
                    newest.write(b"torn")
        broker.start()
        with Client.open((broker.host, broker.amqp_port)) as client:
            client.call(1, "confirm.select")
            confirmed(client, 1, range(100 + restart, 101 + restart))
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        confirmed(client, 1, range(104))
        assert ready(client, "once") == ready(client, "behind") == 104


def test_the_time_of_an_id_goes_on_while_the_broker_is_down(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        declare_durable(client, **{"x-cache-ttl": 100})
        confirmed(client, 1, range(1))
        broker.kill()
    time.sleep(0.11)
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        confirmed(client, 1, range(1))
        assert drain(client, "once") == drain(client, "behind") == [b"0", b"0"]


def test_files_of_ids_are_replaced_and_go_with_their_owner(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker()
    directory = next((broker.data_dir / "vhosts").iterdir()) / "deduplication"
    with Client.open((broker.host, broker.amqp_port)) as client:
        declare_durable(client)
        for part in range(5):
            confirmed(client, 1 + part * 2000, range(part * 1000, part * 1000 + 1000))
        # A file that was replaced is removed on a thread.
        seconds_until(lambda: all(len(list(each.iterdir())) <= 2 for each in directory.iterdir()))
        broker.kill()
        broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        confirmed(client, 1, range(4900, 5000))
        assert ready(client, "once") == ready(client, "behind") == 5000
        client.call(1, "queue.delete", queue="once")
        client.call(1, "exchange.delete", exchange="once")
        seconds_until(lambda: client.fence(1) is None and not list(directory.iterdir()))
        broker.stop()


def test_nothing_is_written_where_ids_do_not_survive(make_broker: Callable[..., Appliance]) -> None:
    broker = make_broker()
    directory = next((broker.data_dir / "vhosts").iterdir()) / "deduplication"
    with Client.open((broker.host, broker.amqp_port)) as client:
        queue = once(client)
        exchange, _ = exchange_of(client)
        send(client, "", queue, (b"1", "a"), delivery_mode=2)
        send(client, exchange, "", (b"1", "a"), delivery_mode=2)
    broker.stop()
    assert not list(directory.iterdir())
