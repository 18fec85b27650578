# cython: language_level=3
"""The handshake: from the protocol header to connection.open (AMQP 0-9-1 section 2.2.4).

One step after the other, each with the one method that may come now. An error is answered with
connection.close once the client has logged in; before that the connection ends silently after three
seconds, so that guessing passwords is slow.
"""

import functools
import logging
from broker.fields.codec import Reader, text
from broker.schema.errors import (
    ChannelFault,
    CommandInvalid,
    LoginRefused,
    NotAllowed,
    SyntaxFault,
)
from broker.wire.commands import added_queues
from broker.wire.method_frames import method_frame

log = logging.getLogger("leveret.connection")

HEADER = b"AMQP\x00\x00\x09\x01"
# 0-9 is treated as 0-9-1, as RabbitMQ does.
ACCEPTED_HEADERS = (HEADER, b"AMQP\x01\x01\x00\x09", b"AMQP\x00\x00\x09\x00")
MECHANISMS = ("PLAIN", "AMQPLAIN")
# The user is the one of the client's certificate; offered to a client whose certificate names one.
EXTERNAL = "EXTERNAL"
FRAME_MAX_LEAST = 4096

CAPABILITIES = {
    "publisher_confirms": True,
    "confirm_on_ack": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": "direct_reply" in added_queues.ADDED,
}

HANDSHAKE = 1  # Connection.phase


cdef class Handshake:
    """What is known of a connection that is not open yet. `step` names the method that may come."""

    cdef object _connection
    cdef object _host
    cdef object _login               # its task, while a password is being checked
    cdef readonly str step

    def __init__(self, connection, host):
        self._connection = connection
        self._host = host
        self.step = "header"
        self._login = None

    def on_protocol_header(self, header):
        connection = self._connection
        if header not in ACCEPTED_HEADERS:
            # The spec's answer to a stranger: the header that would have been right, then the end.
            connection.out_and_close(HEADER)
            return
        connection.set_phase(HANDSHAKE)
        self.step = "start-ok"
        properties = tuple(self._host.server_properties.items())
        connection.output.send(_start(properties, tuple(self._host.mechanisms(connection))))

    def on_method(self, name, arguments):
        """Takes the next step. Raises AMQPError."""
        if name != f"connection.{self.step}":
            raise ChannelFault(f"expected 'connection.{self.step}', got '{name}'")
        if self.step == "start-ok":
            self._on_start_ok(**arguments)
        elif self.step == "tune-ok":
            self._on_tune_ok(**arguments)
        else:
            self._on_open(**arguments)

    def _on_start_ok(
        self, client_properties, mechanism, response, locale
    ):
        connection = self._connection
        connection.introduce(client_properties)
        connection.auth_mechanism = mechanism
        if mechanism == EXTERNAL and self._host.takes_external(connection):
            self.step = "login"
            connection.hold()
            self._host.login_external(connection)
            return
        user, password = credentials(mechanism, response)
        self.step = "login"
        login = self._host.login(connection, user, password)
        if isinstance(login, str):
            self.logged_in(login)
        else:
            connection.hold()
            self._login = login

    def end(self):
        """The transport is closed: the password is not verified, unless that has begun."""
        if self._login is not None:
            self._login.cancel()

    def logged_in(self, user):
        """The password was right."""
        config = self._host.config
        self._connection.user = user
        self.step = "tune-ok"
        self._connection.output.send(
            _tune(config.channel_max, config.frame_max, config.heartbeat))

    def login_refused(self, reason):
        """It was not, or the user may not log in from there."""
        connection = self._connection
        log.warning(
            "connection %s: login refused with mechanism %s: %s",
            connection.name,
            connection.auth_mechanism,
            reason,
        )
        error = LoginRefused(
            f"Login was refused using authentication mechanism {connection.auth_mechanism}. "
            "For details see the broker logfile."
        )
        if connection.can("authentication_failure_close"):
            connection.close_with(error.reply_code, error.reply_text(), 0, 0)
        else:
            connection.close_silently()

    def _on_tune_ok(self, channel_max, frame_max, heartbeat):
        config = self._host.config
        for what, value, offered in (
            ("channel_max", channel_max, config.channel_max),
            ("frame_max", frame_max, config.frame_max),
        ):
            if value > offered or (value == 0 and offered):
                raise NotAllowed(
                    f"negotiated {what} = {value} is higher than the maximum allowed value "
                    f"({offered})"
                )
        if frame_max < FRAME_MAX_LEAST:
            raise NotAllowed(
                f"negotiated frame_max = {frame_max} is lower than the minimum allowed value "
                f"({FRAME_MAX_LEAST})"
            )
        self._connection.set_tuned(channel_max, frame_max)
        self._connection.heartbeat = heartbeat
        self.step = "open"

    def _on_open(self, virtual_host):
        connection = self._connection
        # A URI that ends with a slash names an empty vhost; none is called so.
        virtual_host = virtual_host or "/"
        vhost = self._host.vhosts.get(virtual_host)
        if vhost is None:
            raise NotAllowed(f"vhost {virtual_host} not found")
        if not self._host.access.vhost_access(connection.user, virtual_host):
            raise NotAllowed(
                f"access to vhost '{virtual_host}' refused for user '{connection.user}'"
            )
        self._host.admit(connection, virtual_host)
        connection.begin(vhost)

    def fail(self, error, class_id, method_id):
        """An error before the connection is open: told to who has logged in, else a silent end."""
        log.warning("connection %s: handshake failed: %s", self._connection.name, error.text)
        if self.step in ("tune-ok", "open"):
            self._connection.close_with(error.reply_code, error.reply_text(), class_id, method_id)
        else:
            self._connection.close_silently()


@functools.lru_cache(8)
def _start(server_properties, mechanisms):
    """connection.start, which is the same for most connections."""
    return method_frame(
        0,
        "connection.start",
        version_major=0,
        version_minor=9,
        server_properties={**dict(server_properties), "capabilities": CAPABILITIES},
        mechanisms=" ".join(mechanisms),
        locales="en_US",
    )


@functools.lru_cache(8)
def _tune(channel_max, frame_max, heartbeat):
    """connection.tune, likewise."""
    return method_frame(
        0, "connection.tune", channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)


def credentials(mechanism, response):
    """User and password of a SASL response. Raises SyntaxFault or CommandInvalid."""
    if mechanism == "PLAIN":
        parts = response.split(b"\x00")
        if len(parts) != 3:
            raise SyntaxFault("the response of mechanism PLAIN is not authzid, user and password")
        return text(parts[1]), text(parts[2])
    if mechanism == "AMQPLAIN":
        # A table without its length in front.
        table = Reader(len(response).to_bytes(4, "big") + response).table()
        login, password = table.get("LOGIN"), table.get("PASSWORD")
        if not isinstance(login, str) or not isinstance(password, str):
            raise SyntaxFault("the response of mechanism AMQPLAIN has no LOGIN or no PASSWORD")
        return login, password
    raise CommandInvalid(
        f"unknown authentication mechanism '{mechanism}'; there are {', '.join(MECHANISMS)}"
    )
