"""Which names and pages may use the doors for browsers."""

import socket

import pytest

from broker.serving.origins import host_accepted, is_loopback, origin_allowed


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:203.0.113.7", False),
        ("10.0.0.1", False),
        ("unix", False),
        ("", False),
    ],
)
def test_loopback_is_what_only_this_machine_can_be(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:15672", True),
        ("[::1]:15672", True),
        ("localhost", True),
        ("LOCALHOST.:15672", True),
        ("leveret.localhost:15672", True),
        (socket.gethostname(), True),
        ("proxied.example", True),
        ("attacker.example", False),
        ("localhost.attacker.example", False),
        ("127.0.0.1.attacker.example", False),
        ("", False),
        ("[::1", False),
        ("a:b:c", False),
    ],
)
def test_from_loopback_a_host_must_be_this_machines(host: str, expected: bool) -> None:
    assert host_accepted(host, "127.0.0.1", {"proxied.example"}) is expected
    assert host_accepted(host, "203.0.113.7", set()) is True


@pytest.mark.parametrize(
    ("origin", "host", "secure", "expected"),
    [
        ("", "a.example", False, True),
        ("http://a.example", "a.example", False, True),
        ("http://a.example", "a.example:80", False, True),
        ("https://a.example", "a.example", True, True),
        ("https://a.example", "a.example:443", True, True),
        ("HTTP://A.example", "a.EXAMPLE", False, True),
        ("http://[::1]:8", "[::1]:8", False, True),
        ("http://a.example:8080", "a.example", False, False),
        ("http://a.example", "a.example:8080", False, False),
        ("http://a.example.attacker.example", "a.example", False, False),
        ("http://user@attacker.example", "user", False, False),
        ("http://", "", False, False),
        ("null", "null", False, False),
        ("http://[", "[", False, False),
        ("ftp://a.example", "a.example", False, False),
    ],
)
def test_a_page_needs_the_same_host_and_port(
    origin: str, host: str, secure: bool, expected: bool
) -> None:
    assert origin_allowed(origin, host, secure, ()) is expected
