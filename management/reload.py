"""SIGHUP in the web process: settings and certificates are read again, together or not at all."""

import asyncio
import logging
import os
import ssl
from typing import Any

from django.conf import settings

from broker.serving import reloading
from broker.serving.certificates import CertificateError, Certificates
from broker.settings.config import ConfigError

log = logging.getLogger(__name__)

#: What the HTTPS listener serves now; browsers are not asked for certificates.
CERTIFICATES = Certificates(ask_clients=False)


#: The context that uvicorn has, once there is a certificate.
_fronts: list[ssl.SSLContext] = []


def served_context() -> ssl.SSLContext:
    """A context that hands each handshake over to the one that counts at that moment.

    uvicorn keeps one context for as long as it serves; a reload replaces what is behind it.
    """
    front = CERTIFICATES.context
    assert front is not None
    _fronts.append(front)

    def choose(socket: Any, name: str | None, context: ssl.SSLContext) -> None:
        chosen = CERTIFICATES.find(name or "") or CERTIFICATES.context
        if chosen is not None:
            socket.context = chosen

    front.sni_callback = choose
    return front


def ask() -> None:
    """The handler of the signal."""
    asyncio.get_running_loop().run_in_executor(None, _read).add_done_callback(_apply)


def _read() -> reloading.Reloaded:
    reloaded = reloading.read_again(settings.APPLIANCE, os.environ)
    CERTIFICATES.load(reloaded.config)
    return reloaded


def _apply(reading: "asyncio.Future[reloading.Reloaded]") -> None:
    try:
        reloaded = reading.result()
    except (ConfigError, CertificateError) as error:
        reloading.refuse(log, error)
        return
    for front in _fronts:
        # The versions of TLS are settled before the handshake is handed over.
        if CERTIFICATES.context is not None:
            front.minimum_version = CERTIFICATES.context.minimum_version
    settings.APPLIANCE = reloaded.config
    settings.SESSION_COOKIE_AGE = reloaded.config.session_lifetime
    reloading.follow(log, "web", reloaded)
