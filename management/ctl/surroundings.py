"""Commands of rabbitmq-diagnostics that show the machine's network, as this program sees it: it
runs on the machine of the broker."""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Any

from management.ctl.table import (
    DATA,
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Facts,
    Parameter,
    Rows,
    runs,
)

_SIOCGIFADDR = 0x8915
_IPV6 = Path("/proc/net/if_inet6")
_RESOLVER = Path("/etc/resolv.conf")
_FAMILIES = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


@runs(
    Command(
        name="list_network_interfaces",
        group="node",
        help="Lists the machine's network interfaces with their addresses.",
        examples=("list_network_interfaces",),
        says="Network interfaces of the machine ...",
    )
)
async def list_network_interfaces(call: Call) -> Rows:
    rows = [[name, address] for _, name in socket.if_nameindex() for address in _addresses(name)]
    return Rows(("interface", "address"), rows)


def _addresses(interface: str) -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
            found.append(socket.inet_ntoa(answer[20:24]))
        except OSError:
            pass  # it has no IPv4 address
    try:
        lines = _IPV6.read_text().splitlines()
    except OSError:
        return found  # a machine without IPv6
    for line in lines:
        words = line.split()
        if words[-1] == interface:
            found.append(str(ipaddress.IPv6Address(bytes.fromhex(words[0]))))
    return found


@runs(
    Command(
        name="resolve_hostname",
        group="node",
        help="Looks a host name up as the broker's machine does.",
        examples=("resolve_hostname broker.example --address-family ipv6",),
        parameters=(
            Parameter(name="hostname", help="The name."),
            Parameter(
                name="--address-family",
                help="Only addresses of this family.",
                choices=tuple(_FAMILIES),
            ),
            Parameter(name="--offline", flag=True, help="Ignored: it is always so."),
        ),
        says="Looking up {hostname} ...",
    )
)
async def resolve_hostname(call: Call) -> Rows:
    name = call.options["hostname"]
    family = _FAMILIES.get(call.options["address_family"] or "", socket.AF_UNSPEC)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, family=family, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise CommandError(
            f"'{name[:255]}' has no address: {error.strerror}", UNAVAILABLE
        ) from None
    except UnicodeError:
        raise CommandError(f"'{name[:255]}' is no host name", DATA) from None
    return Rows(("address",), [[address] for address in dict.fromkeys(one[4][0] for one in found)])


@runs(
    Command(
        name="resolver_info",
        group="node",
        help="Shows how the machine looks names up: name servers, search list and options.",
        examples=("resolver_info",),
        parameters=(Parameter(name="--offline", flag=True, help="Ignored: it is always so."),),
        says="Settings of the resolver ...",
    )
)
async def resolver_info(call: Call) -> Facts:
    found: dict[str, list[str]] = {"nameserver": [], "search": [], "options": []}
    for line in _lines(_RESOLVER):
        key, *values = line.partition("#")[0].split() or [""]
        if key in found:
            found[key] += values
    shown: dict[str, Any] = {key: ", ".join(values) or "(none)" for key, values in found.items()}
    return Facts({"": shown}, found)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", UNAVAILABLE) from None


@runs(
    Command(
        name="discover_peers",
        group="node",
        help="Lists the nodes of the cluster that can be found: this one.",
        examples=("discover_peers",),
        verb="overview",
        says="Looking for peers ...",
    )
)
async def discover_peers(call: Call) -> Rows:
    node = (await call.ask("overview", disable_stats=True))["node"]
    return Rows(("node",), [[node]])
