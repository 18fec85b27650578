"""What the tests of TLS handshakes and client certificates share."""

from __future__ import annotations

import ssl
from pathlib import Path


def hello_of(authority: Path) -> bytes:
    """What a TLS client says first that believes the authority in this file."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(authority))
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the handshake was over before it began")
