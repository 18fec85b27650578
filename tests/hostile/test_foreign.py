"""Who has no permissions in a virtual host learns nothing of it, by no route, verb or push.

Each is asked for what is there and for what is nowhere, and the answers have to be the same. The
routes come from the route table, the verbs, nouns and events from the control socket's tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from broker.schema.control_schema import EVENTS, NOUNS, VERBS
from broker.schema.sight import EVENTS_SHOWN
from management.broker_client import BrokerClient, BrokerError
from tests.amqp import raw
from tests.api.conftest import path
from tests.api.test_sessions import live, sign_in, token_in
from tests.appliance import Appliance
from tests.hostile.foreign import AWAY, PASSWORD, ROLES, THERE, House
from tests.hostile.route_table import RULES, routes

OTHERS = ROLES[:-1]
"""Roles whose users see what they have permissions for."""
RULE_OF = {route: rule for rule, listed in RULES.items() for route in listed}
BODY = {
    "pattern": "^zq",
    "definition": {"max-length": 9},
    "apply-to": "all",
    "value": {"src-uri": "amqp://", "dest-uri": "amqp://"},
    "type": "direct",
    "routing_key": "zq",
    "payload": "x",
    "payload_encoding": "string",
    "properties": {},
    "arguments": {},
    "count": 1,
    "ackmode": "ack_requeue_true",
    "encoding": "auto",
    "prefetch": 1,
    "action": "sync",
    "target": "zq",
}
ACTIONS = {
    "/queues/": (
        *("get", "read", "publish", "bind", "unbind", "purge", "pause", "resume", "delete"),
        *("transfer", "preview_transfer", "replay"),
        *("stop_transfer", "pause_transfer", "resume_transfer"),
    ),
    "/exchanges/": ("publish", "bind", "unbind", "delete"),
    "/connections/": ("close",),
    "/vhosts/": ("permit", "revoke", "limit", "edit", "delete"),
    "/users/": ("permit", "revoke", "change", "limit", "delete"),
}
FORM = {
    "confirm": "zq",
    "routing_key": "zq",
    "source": "amq.topic",
    "payload": "x",
    "how": "look",
    "mode": "copy",
    "target": "zq",
}
# How many connections the node has, without whose and where to, as in RabbitMQ: load balancers ask.
COUNTED_FOR_ALL = "/api/health/checks/below-node-connection-limit"
UNSTABLE = ("at", "rate", "next_at", "sync_p50_ms", "sync_p99_ms")
TRIES = 3


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    place = tmp_path_factory.mktemp("foreign")
    appliance = Appliance("serve", place, problem_grace=0).start()
    made = House(appliance)
    deadline = time.monotonic() + 60
    # Counts of a virtual host are sampled once a second: the first look is to find them.
    own = made.clients["management"]
    while not (
        all(row["exchanges"] and row["queues"] for row in own.get("/api/vhosts").json())
        and own.get("/api/overview").json()["object_totals"]["queues"]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    made.before = {role: snapshot(made.clients[role]) for role in OTHERS}
    made.fill()
    yield made
    made.close()
    appliance.close()


def snapshot(client: httpx.Client) -> dict[str, str]:
    """What every list answers, with its counts."""
    found = {}
    for route in routes():
        if "<" in route or not route.startswith("/api/") or "livelog" in route:
            continue
        answer = client.get(route)
        found[route] = f"{answer.status_code} {stable(answer)}"
        if answer.text.startswith("[{"):
            for query in ("?page=1&page_size=100", "?columns=name,vhost&sort=name"):
                found[route + query] = stable(client.get(route + query))
    return found


def stable(answer: httpx.Response) -> str:
    def keep(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: keep(one) for key, one in value.items() if key not in UNSTABLE}
        return [keep(one) for one in value] if isinstance(value, list) else value

    try:
        return json.dumps(keep(answer.json()), sort_keys=True)
    except ValueError:
        return answer.text


def may_learn(role: str, route: str) -> bool:
    return role == "monitoring" and RULE_OF[route] == "monitoring"


def test_every_route_says_who_learns_of_foreign_things() -> None:
    assert set(RULE_OF) == set(routes())
    assert sum(map(len, RULES.values())) == len(RULE_OF), "a route is listed twice"
    assert EVENTS_SHOWN.keys() == EVENTS.keys()


@pytest.mark.parametrize("role", OTHERS)
def test_lists_and_their_counts_are_those_of_a_broker_without_the_foreign_things(
    house: House, role: str
) -> None:
    wrong = []
    for where, text in snapshot(house.clients[role]).items():
        if may_learn(role, where.partition("?")[0]) or where == COUNTED_FOR_ALL:
            continue
        if f"{THERE}-" in text or text != house.before[role][where]:
            wrong.append(f"{where}\n  {house.before[role][where]}\n  {text}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("role", OTHERS)
def test_an_api_route_answers_for_foreign_things_as_for_none(house: House, role: str) -> None:
    client, wrong, seen = house.clients[role], [], house.inventory()
    for route in routes():
        if not route.startswith("/api/") or may_learn(role, route):
            continue
        for method in house.methods(route):
            if "livelog" in route or (route.endswith("/run") and role == "monitoring"):
                continue
            answers = [
                ask(house, client, method, route, prefix)
                for prefix in ((THERE, AWAY) if "<" in route else (THERE,))
            ]
            if len(set(answers)) > 1 or ("<" not in route and "NAMED" in answers[0]):
                wrong.append(f"{method} {route}: {answers}")
    assert not wrong, "\n".join(wrong)
    assert house.inventory() == seen


def ask(house: House, client: httpx.Client, method: str, route: str, prefix: str) -> str:
    headers = {} if "<" in route else {"X-Vhost": f"{prefix}-vhost"}
    body = {**BODY, "name": f"{prefix}-thing", "users": [f"{prefix}-user"]}
    answer = client.request(
        method, house.filled(route, prefix), headers=headers, json=None if method == "GET" else body
    )
    text = house.plain(stable(answer), prefix)
    assert answer.status_code != 500, (method, route, answer.text)
    return f"{answer.status_code} {text}"


@pytest.mark.parametrize("role", OTHERS)
def test_a_header_that_names_a_foreign_vhost_is_answered_as_one_that_names_none(
    house: House, role: str
) -> None:
    wrong = []
    for route in routes():
        if "<" in route or not route.startswith("/api/") or may_learn(role, route):
            continue
        answers = []
        for prefix in (THERE, AWAY):
            headers = {"X-Vhost": f"{prefix}-vhost"}
            answer = house.clients[role].get(route, headers=headers)
            answers.append(f"{answer.status_code} {house.plain(stable(answer), prefix)}")
        if answers[0] != answers[1]:
            wrong.append(f"{route}: {answers}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("role", OTHERS[1:])
def test_a_page_shows_foreign_things_as_none(house: House, role: str) -> None:
    wrong, seen = [], house.inventory()
    with httpx.Client(base_url=house.appliance.http_url, timeout=60) as client:
        assert sign_in(client, f"role-{role}", PASSWORD).status_code == 302
        token = token_in(client.get("/queues/mine/own-queue/messages"))
        for route in routes():
            if route.startswith("/api/") or route in ("/login", "/logout"):
                continue
            if may_learn(role, route) or (route.startswith("/reports") and role == "monitoring"):
                continue
            # A chart may have got a sample between two answers. What is let out differs each time.
            for _ in range(TRIES):
                found = [page(house, client, route, prefix, token) for prefix in (THERE, AWAY)]
                differing = [
                    f"{route}: {there[:2000]}\n{away[:2000]}"
                    for there, away in zip(*found, strict=True)
                    if there != away
                ]
                if not differing:
                    break
            wrong += differing
            if "<" not in route:
                # Without a name in its address.
                answer = client.get(route)
                # With the dash of all its names: a token may have the letters by chance.
                if f"{THERE}-" in answer.text:
                    wrong.append(f"{route}: {answer.text}")
    assert not wrong, "\n".join(wrong)
    assert house.inventory() == seen


def page(house: House, client: httpx.Client, route: str, prefix: str, token: str) -> list[str]:
    names = {"vhost": f"{prefix}-vhost", "name": f"{prefix}-thing", "q": f"{prefix}-thing"}
    where = house.filled(route, prefix)
    answers = [client.get(where), client.get(where, params=names)]
    for start, actions in ACTIONS.items():
        if not route.startswith(start):
            continue
        for action in actions:
            form = {**FORM, "action": action, "confirm": f"{prefix}-thing"}
            answers.append(client.post(where, data={**form, "csrfmiddlewaretoken": token}))
    return [
        f"{one.status_code} {one.headers.get('Location')} {house.plain(one.text, prefix)}"
        for one in answers
    ]


def test_who_may_see_them_finds_them(house: House) -> None:
    """The test of the tests: what is hidden above is there."""
    administrator, monitoring = house.clients["administrator"], house.clients["monitoring"]
    shown = {
        route
        for route in routes()
        if route.startswith("/api/")
        and "<" not in route
        and "livelog" not in route
        and THERE in administrator.get(route).text
    }
    nouns = set(NOUNS) - {"global-parameters"} | {"problems", "definitions"}
    for noun in nouns:
        assert f"/api/{noun}" in shown
    for noun in ("connections", "channels", "vhosts"):
        assert THERE in monitoring.get(f"/api/{noun}").text
    where = path("reports", "queue-usage", "runs", "latest.csv")
    assert THERE in monitoring.get(where).text
    for role in ("management", "policymaker"):
        answer = house.clients[role].get(where)
        assert "own-queue" in answer.text
        assert f"{THERE}-" not in answer.text


# -- the control socket, which carries all of it ---------------------------------------------------

SEEN_BY_MONITORING = {
    "connections",
    "channels",
    "vhosts",
}


@contextlib.asynccontextmanager
async def control(house: House) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(house.appliance.control_socket)
    try:
        yield client
    finally:
        await client.close()


def named(house: House, prefix: str) -> dict[str, Any]:
    """A value for each argument of a verb."""
    thing = f"{prefix}-thing"
    connection = house.connection if prefix == THERE else "127.0.0.1:1 -> 127.0.0.1:2"
    return {
        **dict.fromkeys(("name", "exchange", "source", "destination", "queue"), thing),
        **{name: f"{prefix}-{name}" for name in ("vhost", "user", "password")},
        **dict.fromkeys(("configure", "write", "read"), ""),
        "names": [f"{prefix}-user"],
        "component": "shovel",
        "value": 7,
        "payload": b"x",
        "destination_type": "queue",
        "properties_key": f"{prefix}-key",
        "pattern": "^zq",
        "routing_key": "zq",
        "definition": {"max-length": 9},
        "consumer_tag": f"{prefix}-tag",
        "connection": connection,
        "channel": 1,
        "prefetch": 1,
        "id": "1-1-1",
        "tags": [],
        "protected": True,
        "check": "aliveness",
        "argument": f"{prefix}-vhost",
        "list": 99,
        "sub": 99,
        "definitions": {},
    }


def requests(house: House, prefix: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every verb with the names; every noun by every verb and topic that takes one. With what it
    is about."""
    values = named(house, prefix)
    connection = values["connection"]
    keys = {noun: [values.get(field, "") for field in row.key] for noun, row in NOUNS.items()}
    keys |= {
        "vhosts": [f"{prefix}-vhost"],
        "users": [f"{prefix}-user"],
        "connections": [connection],
        "channels": [f"{connection} (1)"],
        "consumers": [f"{connection} (1)", f"{prefix}-tag"],
    }
    for name, verb in VERBS.items():
        fields = verb.arguments.__struct_fields__
        if verb.tag == "appliance" or name in ("list", "item", "subscribe", "history", "log"):
            continue
        args = {field: values[field] for field in fields if field in values}
        if name.startswith(("connection.", "channel.")) and "name" in args:
            args["name"] = connection if name.startswith("connection.") else f"{connection} (1)"
        if name.startswith("vhost.") and "name" in args:
            args["name"] = f"{prefix}-vhost"
        if name.startswith("user.") and "name" in args:
            args["name"] = f"{prefix}-user"
        if name.endswith(("-limit.put", "-limit.delete")):
            args["name"] = "max-queues" if name.startswith("vhost") else "max-channels"
        if name.startswith("transfer."):
            args.pop("value", None)
            more = {"id": 1 if prefix == THERE else 2, "mode": "copy", "target": args.get("name")}
            args |= {field: more[field] for field in fields if field in more}
        about = "connections" if name.startswith(("connection.", "channel.")) else ""
        yield about, name, args
    for noun in NOUNS:
        for filters in (
            {"vhost": values["vhost"]},
            {"user": values["user"]},
            {"connection": connection},
            {"vhost": values["vhost"], "queue": values["queue"]},
            {"vhost": values["vhost"], "source": values["source"]},
            {"name": f"{prefix}-", "page": 1},
            {"name": f"^{prefix}", "use_regex": True},
        ):
            yield noun, "list", {"noun": noun, **filters}
        item = dict(zip(NOUNS[noun].key, keys[noun], strict=True))
        if noun != "consumers":
            yield noun, "item", {"noun": noun, **item}
            what = noun.removesuffix("s")
            if what in ("vhost", "queue", "exchange", "connection"):
                yield noun, "history", {"what": what, "key": keys[noun]}
        yield noun, "subscribe", {"topic": "item", "noun": noun, "key": keys[noun]}
        yield noun, "subscribe", {"topic": "rows", "noun": noun, "keys": [keys[noun]]}
    yield "", "history", {"what": "overview", "key": [values["vhost"]]}
    yield "", "subscribe", {"topic": "overview", "vhost": values["vhost"]}


async def outcome(client: BrokerClient, user: str, verb: str, args: dict[str, Any]) -> str:
    try:
        if verb != "subscribe":
            return repr(await client.call(verb, as_user=user, **args))
        pushes = client.subscribe(as_user=user, **args)
        async with contextlib.aclosing(pushes):
            push = await asyncio.wait_for(anext(pushes), 60)
            return f"{push.event} {push.data}"
    except BrokerError as error:
        return f"{error.status} {error.error} {error.reason}"


@pytest.mark.parametrize("role", OTHERS)
async def test_a_verb_answers_for_foreign_things_as_for_none(house: House, role: str) -> None:
    wrong, seen, asked = [], house.inventory(), 0
    async with control(house) as client:
        for (about, verb, args), (_, _, none) in zip(
            requests(house, THERE), requests(house, AWAY), strict=True
        ):
            asked += 1
            if role == "monitoring" and about in SEEN_BY_MONITORING:
                continue
            if args == none:
                # It names nothing.
                if role != "monitoring":
                    assert THERE not in await outcome(client, f"role-{role}", verb, args)
                continue
            answers = []
            for arguments, prefix in ((args, THERE), (none, AWAY)):
                text = await outcome(client, f"role-{role}", verb, arguments)
                answers.append(house.plain(text, prefix))
            if answers[0] != answers[1]:
                wrong.append(f"{verb} {args}: {answers}")
    assert not wrong, "\n".join(wrong)
    assert house.inventory() == seen
    assert asked > 150


@pytest.mark.parametrize("role", ["management", "policymaker"])
def test_live_rows_of_foreign_things_are_those_of_none(house: House, role: str) -> None:
    """Over the socket of the pages."""
    with httpx.Client(base_url=house.appliance.http_url, timeout=60) as client:
        assert sign_in(client, f"role-{role}", PASSWORD).status_code == 302
        wanted = [
            [args for _, verb, args in requests(house, prefix) if verb == "subscribe"]
            for prefix in (THERE, AWAY)
        ]
        # The first has started when the fence, the caller's own, has.
        for pair in zip(*wanted, strict=True):
            answers = []
            for number, (args, prefix) in enumerate(zip(pair, (THERE, AWAY), strict=True)):
                with live(client) as socket:
                    socket.send(json.dumps({"type": "subscribe", "id": number, **args}))
                    message = json.loads(socket.recv(20))
                    answers.append(house.plain(f"{message['event']} {message['data']}", prefix))
            assert answers[0] == answers[1], pair[0]


@pytest.mark.parametrize("role", OTHERS[1:])
async def test_events_tell_nothing_of_foreign_things(house: House, role: str) -> None:
    vhost = f"{THERE}-vhost"
    told: list[tuple[str, Any]] = []
    async with control(house) as client:
        pushes = client.subscribe(as_user=f"role-{role}", topic="events")
        async with contextlib.aclosing(pushes):
            assert (await anext(pushes)).event == "start"
            await asyncio.to_thread(change_everything, house, vhost)
            house.put("queues", "mine", "the-last")
            while "the-last" not in str(told):
                push = await asyncio.wait_for(anext(pushes), 60)
                told.append((push.event, push.data))
    house.guest.delete(path("queues", "mine", "the-last"))
    may = ("connection.", "vhost.") if role == "monitoring" else ()
    foreign = [one for one in told if THERE in str(one) and not one[0].startswith(may or ("-",))]
    assert not foreign
    assert bool(may) == any(THERE in str(one) for one in told)


def change_everything(house: House, vhost: str) -> None:
    for kind in ("queues", "exchanges"):
        house.put(kind, vhost, f"{THERE}-passing", **({"type": "direct"} if kind[0] == "e" else {}))
        house.guest.delete(path(kind, vhost, f"{THERE}-passing"))
    rules = {"pattern": "^none", "definition": {"max-length": 9}}
    house.put("policies", vhost, f"{THERE}-passing", **rules)
    house.guest.delete(path("policies", vhost, f"{THERE}-passing"))
    house.put("users", f"{THERE}-passing", password=PASSWORD, tags="")
    house.guest.delete(path("users", f"{THERE}-passing"))
    house.put("vhosts", f"{THERE}-passing")
    house.guest.delete(path("vhosts", f"{THERE}-passing"))
    address = (house.appliance.host, house.appliance.amqp_port)
    raw.Client.open(address, user=f"{THERE}-user", password=PASSWORD, virtual_host=vhost).close()
