"""TLS contexts of clients, and why a connection did not come about, in words."""

from __future__ import annotations

import functools
import os
import socket
import ssl

from broker.client.errors import TLSFailed
from broker.client.uri import TLS

CONTEXTS_KEPT = 16
ISSUER_UNKNOWN = (18, 19, 20, 21)
"""OpenSSL's codes for a chain whose root the client does not trust."""
_TLS_REASONS = {
    "WRONG_VERSION_NUMBER": "the server does not speak TLS at this port",
    "RECORD_LAYER_FAILURE": "the server does not speak TLS at this port",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server wants a client certificate: name one with"
    " certfile and keyfile",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not accept the client certificate",
}


def reason_of(error: OSError) -> str:
    """Why no connection came about; asyncio puts the address in the place of the system's text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        unknown = error.verify_code in ISSUER_UNKNOWN
        hint = "; name the certificate of its authority with cacertfile" if unknown else ""
        return f"the server's certificate is not accepted: {error.verify_message}{hint}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {_TLS_REASONS.get(error.reason, error.strerror or str(error))}"
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return str(error.strerror or error)


def context_of(tls: TLS) -> ssl.SSLContext:
    """The TLS context of an endpoint: the same one as long as its files do not change, as each
    holds all authorities of the system. Raises TLSFailed if a file cannot be used."""
    try:
        files = (tls.ca_file, tls.certificate_file, tls.key_file)
        return _context(tls, tuple(file and file.stat().st_mtime_ns for file in files))
    except (OSError, ssl.SSLError) as error:
        raise TLSFailed(f"a certificate cannot be used: {error}") from None


@functools.lru_cache(maxsize=CONTEXTS_KEPT)
def _context(tls: TLS, changed_at: tuple[int | None, ...]) -> ssl.SSLContext:
    # A named authority is the only one that counts.
    context = ssl.create_default_context(cafile=tls.ca_file if tls.verify else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.server_name == "":
        context.check_hostname = False
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    return context
