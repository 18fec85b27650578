"""In whose name a shovel runs, what it may connect to, and what becomes of its secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.schema.shovel_keys import KEYS, fault, settled
from management.bridges.addresses import Addresses
from management.bridges.plan import ShovelFailed
from management.broker_client import BrokerError
from tests.bridges.conftest import Bench, Pair, bench_of, taken

GOOD = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"src-queue": None}, "Must specify 'src-exchange' or 'src-queue'"),
        ({"src-exchange": "x"}, "Cannot specify 'src-exchange' and 'src-queue'"),
        ({"dest-exchange": "x"}, "Cannot specify 'dest-exchange' and 'dest-queue'"),
        ({"colour": 7}, 'Unrecognised terms [{<<"colour">>,7}] in s'),
        ({"src-prefetch-count": "many"}, 'src-prefetch-count should be a number, actually was <<"'),
        ({"src-prefetch-count": 70000}, "src-prefetch-count should be a number from 0 to 65535"),
        ({"ack-mode": "perhaps"}, "ack-mode should be one of on-confirm, on-publish, no-ack"),
        ({"src-delete-after": "soon"}, "src-delete-after should be a number greater than or equal"),
        ({"src-delete-after": 5, "ack-mode": "no-ack"}, "Cannot specify 'no-ack' and numerical"),
        ({"dest-add-forward-headers": 1}, "dest-add-forward-headers should be a boolean"),
        ({"src-queue-args": []}, "src-queue-args should be an object"),
        ({"src-uri": 7}, "src-uri should be a URI or a list of URIs, actually was 7"),
        ({"dest-uri": []}, "dest-uri should be a URI or a list of URIs"),
        ({"dead-letter-queue": "x"}, "dead-letter-queue needs on-refused dead-letter"),
    ],
)
def test_a_definition_that_cannot_run_is_refused(changed: dict[str, Any], text: str) -> None:
    value = {key: item for key, item in {**GOOD, **changed}.items() if item is not None}
    found = fault("s", value)
    assert found is not None
    assert text in found


def test_former_names_of_keys_are_understood() -> None:
    given = {**GOOD, "prefetch-count": 5, "delete-after": "queue-length"}
    assert fault("s", given) is None
    found = settled(given)
    assert (found["src-prefetch-count"], found["src-delete-after"]) == (5, "queue-length")
    assert found.keys() == KEYS.keys()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"src-uri": "http://h"}, "src-uri: the scheme is amqp, amqps, not 'http'"),
        ({"dest-uri": "amqp+unix:///run/x"}, "dest-uri: the scheme is"),
        ({"dest-uri": "amqp://u:s3cret@h:notaport"}, "dest-uri: the URI cannot be read"),
        ({"dest-uri": "amqp://u:s3cret/rest@h"}, "dest-uri: the URI cannot be read"),
        ({"dest-uri": ["amqp://h", "http://h"]}, "all of them are AMQP or all of them are HTTP"),
        ({"dest-uri": "amqps://h?cacertfile=/etc/passwd"}, "there is no certificate '/etc/passwd'"),
        ({"dest-uri": "amqp:///other"}, 'user "guest" may not connect to vhost "other"'),
        ({"dest-uri": "amqp://u:***@h"}, "the password is ***, and none is stored"),
        ({"dest-publish-properties": {"colour": 1}}, "there is no property 'colour'"),
        ({"dest-publish-properties": {"priority": "x"}}, "the property priority cannot be sent"),
        ({"dest-headers": {"Host": "x"}}, "'Host' is no header that may be set"),
        ({"dest-headers": {"X-A": "a\r\nB: c"}}, "the value of X-A has characters"),
    ],
)
async def test_a_uri_that_cannot_be_used_is_refused(
    bench: Bench, changed: dict[str, Any], text: str
) -> None:
    with pytest.raises(BrokerError) as caught:
        await bench.put(**{**GOOD, **changed})
    assert caught.value.status == 400
    assert text in caught.value.reason
    assert "s3cret" not in caught.value.reason


async def test_it_stops_when_its_user_loses_the_permission_and_runs_again_with_it(
    bench: Bench,
) -> None:
    control, user = bench.control, bench.shovel
    await control.call("user.put", name=user, password="secret-of-it", tags=["policymaker"])
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    await control.call("permission.put", vhost="/", user=user, **rights)
    await bench.put(user=user, dest_queue=bench.target)
    row = await bench.until_state("running")
    assert row["owner"] == user
    await control.call("permission.put", vhost="/", user=user, **{**rights, "write": "^$"})
    await control.call("shovel.restart", vhost="/", name=bench.shovel)
    await bench.publish(1)
    row = await bench.until_state("stopped")
    assert "ACCESS_REFUSED" in row["reason"]
    await control.call("permission.delete", vhost="/", user=user)
    await control.call("shovel.restart", vhost="/", name=bench.shovel)
    row = await bench.until(lambda row: "any more" in row["reason"])
    assert row["state"] == "stopped"
    await control.call("permission.put", vhost="/", user=user, **rights)
    await control.call("shovel.restart", vhost="/", name=bench.shovel)
    assert len(await taken(bench.here, bench.target, 1)) == 1
    await control.call("user.delete", name=user)
    await bench.until(lambda row: row["state"] == "stopped" and "does not exist" in row["reason"])


async def test_stars_keep_the_password_of_the_same_user_at_the_same_address(bench: Bench) -> None:
    uri = "amqp://ann:s3cret@127.0.0.1:1/v"
    await bench.put(dest_uri=uri, dest_queue="b")
    await bench.put(dest_uri="amqp://ann:***@127.0.0.1:1/other", dest_queue="b")
    where = {"noun": "parameters", "component": "shovel", "vhost": "/", "name": bench.shovel}
    stored = await bench.control.call("item", **where, secrets=True)
    assert stored["value"]["dest-uri"] == "amqp://ann:s3cret@127.0.0.1:1/other"
    row = await bench.row()
    assert row is not None
    assert row["definition"]["dest-uri"] == "amqp://ann:***@127.0.0.1:1/other"
    with pytest.raises(BrokerError, match=r"none is stored for this user at this address"):
        await bench.put(dest_uri="amqp://ann:***@127.0.0.2:1/other", dest_queue="b")


async def test_an_import_keeps_the_owner(bench: Bench) -> None:
    control, user = bench.control, bench.shovel
    await control.call("user.put", name=user, password="secret-of-it", tags=["policymaker"])
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    await control.call("permission.put", vhost="/", user=user, **rights)
    await bench.put(user=user, dest_queue=bench.target)
    value = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": bench.queue}
    rows = [
        {"component": "shovel", "vhost": "/", "name": name, "value": {**value, "dest-queue": "c"}}
        for name in (bench.shovel, f"{bench.shovel}-new")
    ]
    await control.call("definitions.import", as_user="guest", definitions={"parameters": rows})
    listed = {row["name"]: row["owner"] for row in await control.call("shovel.list", vhost="/")}
    assert listed[bench.shovel] == user
    assert listed[f"{bench.shovel}-new"] == "guest"
    await control.call(
        "parameter.delete", component="shovel", vhost="/", name=f"{bench.shovel}-new"
    )
    await control.call("user.delete", name=user)


async def test_a_shovel_without_an_owner_is_stopped_until_it_is_saved_again(
    tmp_path: Path,
) -> None:
    """As a version that did not run shovels has stored it, with its password in the clear."""
    pair = Pair(tmp_path)
    uri = "amqp://guest:s3cret-old@127.0.0.1:1"
    row = {"component": "shovel", "vhost": "/", "name": "old", "value": {**GOOD, "dest-uri": uri}}
    file = pair.broker.data_dir / "parameters.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"parameters": [row]}))
    try:
        pair.start()
        async with bench_of(pair) as bench:
            bench.shovel = "old"
            found = await bench.until_state("stopped")
            assert "is not recorded: save it again" in found["reason"]
            assert found["owner"] is None
            assert "s3cret" not in file.read_text()
            await bench.put(dest_uri="amqp://guest:***@127.0.0.1:1", dest_queue="b")
            found = await bench.until(lambda row: "refused" in row["reason"])
            assert found["owner"] == "guest"
            where = {"noun": "parameters", "component": "shovel", "vhost": "/", "name": "old"}
            stored = await bench.control.call("item", **where, secrets=True)
            assert stored["value"]["dest-uri"] == uri
    finally:
        pair.close()


async def test_a_shovel_whose_passwords_cannot_be_decrypted_says_so(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        pair.start()
        async with bench_of(pair) as bench:
            await bench.put(dest_uri="amqp://guest:s3cret@127.0.0.1:1", dest_queue="b")
            shovel, bench.shovel = bench.shovel, "none"
        pair.broker.stop()
        (pair.broker.data_dir / "secrets_key").unlink()
        pair.broker.start()
        async with bench_of(pair) as bench:
            bench.shovel = shovel
            row = await bench.until_state("stopped")
            assert "cannot be decrypted" in row["reason"]
            with pytest.raises(BrokerError, match="none is stored"):
                await bench.put(dest_uri="amqp://guest:***@127.0.0.1:1", dest_queue="b")
            (problem,) = [
                text
                for text in (await bench.control.call("nodes"))[0]["recovery_problems"]
                if "decrypted" in text
            ]
            assert "secrets_key" in problem
    finally:
        pair.close()


async def test_a_shovel_of_the_appliance_runs_as_an_administrator(bench: Bench) -> None:
    """As `manage.py ctl` writes it."""
    bodies = await bench.publish(2)
    await bench.put(user=None, dest_queue=bench.target)
    assert [one.body for one in await taken(bench.here, bench.target, 2)] == bodies


@pytest.mark.parametrize(
    ("host", "address", "allowed", "denied", "is_fine"),
    [
        ("h", "10.0.0.1", (), (), True),
        ("h", "127.0.0.1", (), (), True),
        ("h", "169.254.169.254", (), (), False),
        ("h", "::ffff:169.254.169.254", (), (), False),
        ("h", "64:ff9b::a9fe:a9fe", (), (), False),
        ("h", "fe80::1%eth0", (), (), False),
        ("h", "fd00:ec2::254", (), (), False),
        ("h", "100.100.100.200", (), (), False),
        ("metadata.google.internal.", "10.0.0.1", (), (), False),
        ("h", "0.0.0.0", (), (), False),
        ("h", "224.0.0.1", (), (), False),
        ("h", "169.254.169.254", ("169.254.169.254",), (), True),
        ("h", "10.0.0.1", ("other.example",), (), False),
        ("Other.Example", "10.0.0.1", ("other.example",), (), True),
        ("h", "10.0.0.1", ("10.0.0.0/8",), ("10.0.0.1",), False),
        ("h", "10.0.0.1", (), ("h",), False),
    ],
)
def test_addresses_that_hand_out_secrets_are_denied(
    host: str, address: str, allowed: tuple[str, ...], denied: tuple[str, ...], is_fine: bool
) -> None:
    rules = Addresses(allowed, denied)
    if is_fine:
        rules.check(host, address)
        return
    with pytest.raises(ShovelFailed, match=r"bridges_(allowed|denied)|no address of a host"):
        rules.check(host, address)


async def test_a_trial_says_at_which_step_it_fails(bench: Bench) -> None:
    async def tried(**changed: Any) -> dict[str, tuple[bool, str]]:
        value = {**GOOD, "src-queue": bench.queue, **changed}
        steps = await bench.control.call(
            "shovel.test", as_user="guest", vhost="/", name="new", value=value
        )
        return {step["step"]: (step["is_fine"], step["text"]) for step in steps}

    found = await tried()
    assert found["Source: connection"][0]
    assert found["Source: queue"] == (True, f"queue '{bench.queue}' is there and has 0 messages")
    assert found["Destination: queue"] == (True, "queue 'b' is not there; it will be declared")
    found = await tried(**{"dest-uri": "amqp://guest:wrong@127.0.0.1:1"})
    assert found["Destination: address"][0]
    assert not found["Destination: connection"][0]
    found = await tried(**{"dest-uri": "amqp://169.254.169.254"})
    assert found["Destination: address"][0] is False
    assert "metadata" in found["Destination: address"][1]
    found = await tried(**{"dest-queue": "b", "dest-predeclared": True})
    assert "no queue 'b'" in found["Destination: queue"][1]
    found = await tried(**{"dest-uri": "http://127.0.0.1:1/"})
    assert not found["Destination: connection"][0]
