"""Planted passwords are in no log, however chatty, and in no file but as hashes."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator

import httpx
import pytest

from tests.amqp import raw
from tests.api.conftest import path
from tests.api.test_sessions import sign_in
from tests.appliance import Appliance

CANARY = "canary7Xq"


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    appliance = Appliance(
        "serve", tmp_path_factory.mktemp("chatty"), log_level="debug", log_lines_per_second=0
    )
    yield appliance.start()
    appliance.close()


def test_no_planted_password_is_in_a_log(chatty: Appliance) -> None:
    planted = {}

    def plant(where: str) -> str:
        return planted.setdefault(where, f"{CANARY}-{len(planted)}-{where}")

    with httpx.Client(base_url=chatty.http_url, auth=("guest", "guest"), timeout=30) as api:
        good = plant("of-a-user")
        user = {"password": good, "tags": "administrator"}
        api.put(path("users", "ada"), json=user).raise_for_status()
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        api.put(path("permissions", "/", "ada"), json=everything).raise_for_status()
        api.put(path("users", "bad"), json={"password": plant("refused"), "tags": 7})
        api.get(path("auth", "hash_password", plant("in-a-path"))).raise_for_status()
        api.put("/api/auth/hash_password", json={"password": plant("to-be-hashed")})
        uri = f"amqp://u:{plant('in-a-uri')}@127.0.0.1"
        value = {"src-uri": uri, "dest-uri": uri, "src-queue": "a", "dest-queue": "b"}
        api.put(path("parameters", "shovel", "/", "s"), json={"value": value}).raise_for_status()
        api.put(path("parameters", "shovel", "/", "t"), json={"value": {"src-uri": uri}})
        document = {"users": [{"name": "x", "password": plant("imported"), "tags": 7}]}
        api.post("/api/definitions", json=document)
        api.post("/api/definitions", content=f'{{"users": "{plant("no-json")}'.encode())
        secret = {"secrets": "true"}
        assert planted["in-a-uri"] in api.get("/api/parameters", params=secret).text
    with httpx.Client(base_url=chatty.http_url, timeout=30) as web:
        for name, password in (("ada", good), ("ada", plant("wrong-http"))):
            web.get("/api/whoami", auth=(name, password))
        web.get("/api/whoami", headers={"Authorization": f"Basic {plant('no-base64')}"})
        for name, password in (("ada", plant("wrong-form")), ("ada", good)):
            sign_in(web, name, password)
    address = (chatty.host, chatty.amqp_port)
    raw.Client.open(address, user="ada", password=good).close()
    for password in (plant("wrong-amqp"), good):
        client = raw.Client(address)
        with contextlib.suppress(AssertionError, OSError):
            client.start(user="ada", password=password, mechanism="PLAIN")
            client.send(b"\xff" * 64)
            client.read_to_end()
        client.socket.close()
    written = chatty.log()
    assert "ada" in written
    hidden = [*planted.values(), *(base64.b64encode(f"ada:{one}".encode()).decode() for one in
                                   planted.values())]  # fmt: skip
    assert not [one for one in hidden if one in written]
    for file in chatty.data_dir.rglob("*"):
        if file.is_file():
            assert CANARY.encode() not in file.read_bytes(), file
