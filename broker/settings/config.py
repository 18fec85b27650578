"""Every setting of the appliance, in one table: the fields of `Config`.

The table gives the default, the INI key and its section, the environment variable
(`LEVERET_` and the name in capitals), the command line option (`--` and the name with dashes),
the text of `--help` and the page `docs/configuration.md`. The command line wins over the
environment, the environment over the INI file, the file over the default.

Settings marked `reload` change while the appliance runs, on SIGHUP (`broker.serving.reloading`).

An unknown key or variable is a warning; an unknown section, an unknown option or a value that
cannot be read is a `ConfigError`, which the commands print as one line and exit with status 78
(EX_CONFIG of sysexits.h).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.process.lifetime import program
from broker.settings import quantities
from broker.settings.sources import (
    DEFAULT_FILE,
    Setting,
    from_command_line,
    from_environment,
    from_file,
)
from broker.settings.sources import (
    IN_FORCE as IN_FORCE,
)
from broker.settings.sources import (
    ConfigError as ConfigError,
)

EXIT_CONFIG = 78
# A Unix socket's path has to fit into sockaddr_un.sun_path, with its closing zero.
SOCKET_PATH_MAX = 107

SECTIONS = {
    "main": "Where things are",
    "amqp": "AMQP connections",
    "websocket": "AMQP over WebSocket",
    "http": "The web app and the HTTP API",
    "metrics": "Prometheus metrics",
    "tls": "TLS",
    "login": "Signing in",
    "queues": "Queues, streams and exchanges",
    "store": "The store",
    "tiers": "Tiers: streams in an object store",
    "reports": "Usage reports",
    "bridges": "Shovels to and from other brokers",
    "log": "The log",
}


def setting(
    section: str,
    default: Any,
    kind: str,
    text: str,
    *,
    secret: bool = False,
    reload: bool = False,
    **bounds: Any,
) -> Any:
    """A field of `Config` that is a setting. `kind` is a key of `quantities.READERS`."""
    read = quantities.reader(kind, **bounds)
    metadata = {
        "section": section,
        "kind": kind,
        "text": text,
        "read": read,
        "reload": reload,
        "secret": secret,
    }
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one appliance. Sizes are bytes, times are seconds."""

    data_dir: Path = setting(
        "main",
        Path("data"),
        "path",
        "directory that holds everything the appliance keeps",
        needed=True,
    )
    bind: tuple[str, ...] = setting(
        "main",
        ("127.0.0.1",),
        "addresses",
        "addresses that every listener binds; 0.0.0.0 for all of IPv4, :: for all of IPv6",
    )
    open_files_max: int = setting(
        "main",
        20_000,
        "count",
        "open files the store may hold at a time; half of the process's limit if that is less",
        least=64,
    )
    load_definitions: Path | None = setting(
        "main",
        None,
        "path",
        "definitions file, or directory of *.json files, of this or another broker that each start"
        " imports; a fault in it ends the start",
    )
    load_definitions_if_changed: bool = setting(
        "main",
        False,
        "yes or no",
        "load_definitions is imported only if it has changed since it was imported last",
    )
    stop_timeout: float = setting(
        "main",
        20.0,
        "time",
        "longest wait for one part of the appliance to stop before it is killed",
        least=1,
        reload=True,
    )

    hang_timeout: float = setting(
        "main",
        30.0,
        "time",
        "a process of the appliance whose loop does not turn for so long is killed and started "
        "again",
        least=10,
    )

    amqp_port: int = setting("amqp", 5672, "port", "AMQP 0-9-1 over TCP; 0 for any free port")
    unix_path: Path | None = setting(
        "amqp", None, "path", "Unix socket for AMQP 0-9-1; none if empty"
    )
    frame_max: int = setting(
        "amqp",
        131_072,
        "size",
        "largest AMQP frame, offered to clients in connection.tune",
        least=4096,
        most=16 * 1024 * 1024,
        reload=True,
    )
    channel_max: int = setting(
        "amqp",
        2047,
        "count",
        "channels a connection may open",
        least=1,
        most=65535,
        reload=True,
    )
    consumers_per_channel_max: int = setting(
        "amqp",
        10_000,
        "count",
        "consumers a channel may have; one more closes the connection with 530",
        least=1,
        reload=True,
    )
    consumers_per_connection_max: int = setting(
        "amqp",
        50_000,
        "count",
        "consumers of all channels of a connection; one more closes it with 530",
        least=1,
        reload=True,
    )
    consumers_per_queue_max: int = setting(
        "amqp",
        20_000,
        "count",
        "consumers a queue may have; one more closes its channel with 406",
        least=1,
        reload=True,
    )
    consumer_arguments_max: int = setting(
        "amqp",
        16 * 1024 * 1024,
        "size",
        "memory for the arguments of all consumers of a connection, such as filters of streams;"
        " a consumer beyond it closes its channel with 406",
        least=4096,
        reload=True,
    )
    heartbeat: int = setting(
        "amqp",
        60,
        "count",
        "seconds between heartbeats, offered to clients; 0 for none",
        most=65535,
        reload=True,
    )
    max_message_size: int = setting(
        "amqp",
        134_217_728,
        "size",
        "largest message body, 512 MiB at most; a larger one closes the channel with 406",
        # The store's formats have 30 bits for the length of a whole record (an entry of acks).
        most=512 * 1024 * 1024,
        reload=True,
    )
    body_in_memory: int = setting(
        "amqp",
        1024 * 1024,
        "size",
        "a body in several frames that is larger is collected in a file until it is whole",
        least=256 * 1024,
        reload=True,
    )
    unfinished_max: int = setting(
        "amqp",
        1000,
        "count",
        "bodies larger than body_in_memory that may be half received at a time, each with an open"
        " file; one more closes its channel with 406",
        least=1,
    )
    max_unacked: int = setting(
        "amqp",
        1_000_000,
        "count",
        "unacknowledged deliveries a channel may hold; past it nothing more is delivered",
        least=1,
        reload=True,
    )
    max_uncommitted_bytes: int = setting(
        "amqp",
        128 * 1024 * 1024,
        "size",
        "memory for what a channel's transaction puts aside, messages and acks; more closes its"
        " channel with 406",
        least=1,
        reload=True,
    )
    routing_keys_max: int = setting(
        "amqp",
        256,
        "count",
        "routing keys in the headers CC and BCC of one message; one more closes its channel with"
        " 406",
        least=1,
        reload=True,
    )
    max_uncommitted_messages: int = setting(
        "amqp",
        100_000,
        "count",
        "messages and acks that a channel's transaction may put aside; one more closes its channel"
        " with 406",
        least=1,
        reload=True,
    )
    max_uncommitted_user_bytes: int = setting(
        "amqp",
        256 * 1024 * 1024,
        "size",
        "memory for the transactions of one user, on all its channels together; more closes the"
        " channel with 406",
        least=1,
        reload=True,
    )
    consumer_timeout: float = setting(
        "amqp",
        0.0,
        "time",
        "a delivery unacknowledged for longer closes its channel with 406; 0 for never",
        reload=True,
    )
    handshake_timeout: float = setting(
        "amqp",
        10.0,
        "time",
        "time from accepting a connection to connection.open",
        least=0.1,
        reload=True,
    )
    send_timeout: float = setting(
        "amqp",
        30.0,
        "time",
        "a client over TCP that takes nothing of what is sent to it for this long is cut off",
        least=1,
        reload=True,
    )
    unsent_max: int = setting(
        "amqp",
        1024 * 1024,
        "size",
        "bytes of returns, confirms and answers that may wait for a client that takes nothing;"
        " with more, nothing further is read from it",
        least=64 * 1024,
    )
    unanswered_max: int = setting(
        "amqp",
        10_000,
        "count",
        "answers that may wait in a connection, for the disk, for messages or for a client that"
        " takes nothing; with more, nothing further is read from it",
        least=100,
    )
    publish_share: int = setting(
        "amqp",
        15,
        "percent",
        "time that the broker spends at most on publishers that flood, 16 KiB and more at a time,"
        " while consumers with a prefetch take messages as fast as they are delivered, from queues"
        " that have more; 100: no limit",
        least=5,
        reload=True,
    )
    close_timeout: float = setting(
        "amqp",
        30.0,
        "time",
        "longest wait for a client to answer connection.close, and then to close its socket; what"
        " it still sends is thrown away",
        least=0.1,
        reload=True,
    )
    close_discard_max: int = setting(
        "amqp",
        128 * 1024 * 1024,
        "size",
        "bytes that a client may still send after connection.close, and that are thrown away; with"
        " more its socket is closed at once",
        least=0,
        reload=True,
    )
    closing_max: int = setting(
        "amqp",
        1000,
        "count",
        "closed connections that may wait for their clients at a time, a quarter of connections_max"
        " if that is less; one more ends the one that has waited longest",
        least=1,
        reload=True,
    )
    connections_max: int = setting(
        "amqp",
        0,
        "count",
        "AMQP connections at a time, over all listeners; 0 for as many as open files leave room",
        reload=True,
    )
    tcp_backlog: int = setting(
        "amqp", 1024, "count", "connections that wait to be accepted", least=1, most=65535
    )
    local_receive_buffer: int = setting(
        "amqp",
        96 * 1024,
        "size",
        "receive buffer of the kernel for connections from the same machine without publisher"
        " confirms: a larger one is not faster there, but leaves the processor's cache; 0 for the"
        " system's own, which connections with confirms have",
        least=0,
        most=16 * 1024 * 1024,
        reload=True,
    )
    tcp_max_segment: int = setting(
        "amqp",
        4096,
        "count",
        "bytes of the largest TCP segment that clients are asked to send: with those of 64 KiB,"
        " which the same machine sends otherwise, a small receive window is never full; 0 for the"
        " system's own",
        least=0,
        most=32767,
    )
    tcp_keepalive: tuple[int, ...] = setting(
        "amqp",
        (60, 10, 3),
        "keepalive",
        "keepalive of TCP: seconds of silence before the first probe, seconds between probes,"
        " probes without an answer before the connection is closed; 0 for the system's own",
        reload=True,
    )
    proxy_protocol_sources: tuple[str, ...] = setting(
        "amqp",
        (),
        "networks",
        "addresses or networks of proxies whose connections over TCP and TLS begin with a PROXY"
        " protocol header; none if empty",
        reload=True,
    )
    pre_login_bytes: int = setting(
        "amqp",
        65_536,
        "size",
        "bytes a peer may send, and have held for it, before it has signed in",
        least=8192,
        reload=True,
    )

    ws_port: int = setting(
        "websocket", 15670, "port", "AMQP 0-9-1 over WebSocket; 0 for any free port"
    )

    ws_message_max: int = setting(
        "websocket",
        4 * 1024 * 1024,
        "size",
        "longest WebSocket message of a client; a larger frame_max raises it",
        least=4096,
        most=1024 * 1024 * 1024,
    )
    ws_pings_max: int = setting(
        "websocket",
        50,
        "count",
        "pings, pongs and empty frames of a WebSocket client in a second; one more closes it with"
        " 1008",
        least=1,
        reload=True,
    )
    ws_unfinished_max: int = setting(
        "websocket",
        64 * 1024 * 1024,
        "size",
        "memory for WebSocket messages on the web port that are not whole or not taken yet; four of"
        " the longest messages if that is more. A quarter is for one address: beyond it further"
        " messages wait unread. The broker's own ports hold none",
        least=1024 * 1024,
        reload=True,
    )
    ws_unfinished_timeout: float = setting(
        "websocket",
        10.0,
        "time",
        "a WebSocket message that takes longer, while others of its address wait for room in"
        " ws_unfinished_max, closes its connection with 1013",
        least=0.1,
        reload=True,
    )

    http_port: int = setting("http", 15672, "port", "web app and HTTP API; 0 for any free port")
    http_timeout: float = setting(
        "http",
        30.0,
        "time",
        "time for a request's head to come, and longest pause of its body",
        least=0.1,
        reload=True,
    )
    http_keep_alive: float = setting(
        "http",
        30.0,
        "time",
        "a connection of the web app that asked for nothing since its last answer is closed after"
        " this time; answers tell it in the header Keep-Alive, for clients that look at it",
        least=1,
        most=86400,
    )
    http_body_rate_min: int = setting(
        "http",
        16 * 1024,
        "size",
        "bytes a second that a request's body has to come at, once it is http_timeout behind them",
        least=1,
        reload=True,
    )
    http_unfinished_max: int = setting(
        "http",
        64 * 1024 * 1024,
        "size",
        "memory for requests that are not finished: three quarters for bodies of signed-in users, a"
        " third of it for one user; one quarter for all else, a quarter of it for one address; more"
        " is refused with 503",
        least=40 * 1024 * 1024,
        reload=True,
    )
    http_write_timeout: float = setting(
        "http",
        30.0,
        "time",
        "a client that takes nothing of an answer for this long is cut off, and the memory that "
        "its answer holds is free again",
        least=1,
        reload=True,
    )
    get_bytes_max: int = setting(
        "http",
        2 * 1024 * 1024,
        "size",
        "bytes of bodies that one request over HTTP is answered which gets, peeks at or reads"
        " messages: they take the broker 2 to 3 ms for each MiB. A larger body is answered"
        " truncated or not at all",
        least=4 * 1024,
        most=128 * 1024 * 1024,
        reload=True,
    )
    http_send_buffer: int = setting(
        "http",
        256 * 1024,
        "size",
        "bytes of an answer, of the web app or of the metrics, that the kernel takes for a client"
        " which has not read them yet; no more of a long answer is made meanwhile",
        least=16 * 1024,
        reload=True,
    )
    http_read_size: int = setting(
        "http",
        16 * 1024,
        "size",
        "bytes that the web app reads at a time from one connection; four times as many of a body"
        " whose sender has signed in",
        least=4 * 1024,
        most=1024 * 1024,
        reload=True,
    )
    web_turn: float = setting(
        "http",
        0.0005,
        "time",
        "processor time that the web app works for its clients before it looks for what is new: in"
        " it their addresses have equal parts, whatever their requests take",
        least=0.0001,
        most=0.01,
        reload=True,
    )
    web_nice: int = setting(
        "http",
        5,
        "count",
        "steps of priority (nice) that the web app stays behind the broker, so that messages come"
        " before pages where processors are short; 0 for none",
        most=19,
    )
    lists_read_max: int = setting(
        "http",
        500,
        "count",
        "lists without pages that clients of the HTTP API may be reading at a time; one more is "
        "refused with 503",
        least=1,
        reload=True,
    )
    session_lifetime: int = setting(
        "http",
        8 * 3600,
        "time",
        "a browser session ends this long after signing in",
        least=60,
        reload=True,
    )
    live_user_sockets_max: int = setting(
        "http",
        100,
        "count",
        "pages that a user may have open with live figures; one more shows its figures without"
        " updates",
        least=1,
        reload=True,
    )
    live_page_subscriptions_max: int = setting(
        "http",
        32,
        "count",
        "things that one page may follow at a time, such as a queue or the rows of a list",
        least=8,
        reload=True,
    )
    live_user_subscriptions_max: int = setting(
        "http",
        200,
        "count",
        "different things that all pages of a user may follow at a time",
        least=8,
        reload=True,
    )
    live_user_rows_max: int = setting(
        "http",
        5000,
        "count",
        "rows of lists that all pages of a user may follow at a time",
        least=500,
        reload=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        "http",
        (),
        "list",
        "host names browsers on this machine may use; addresses and local names always work",
        reload=True,
    )
    allowed_origins: tuple[str, ...] = setting(
        "http",
        (),
        "list",
        "origins such as https://shop.example whose pages may use WebSockets and API; * for all",
        reload=True,
    )
    trusted_proxies: tuple[str, ...] = setting(
        "http",
        (),
        "list",
        "addresses or networks of proxies whose X-Forwarded-* headers are believed; none if empty",
    )

    metrics_port: int = setting(
        "metrics",
        15692,
        "optional port",
        "Prometheus metrics; 0 for none, -1 for any free port",
    )
    metrics_login: bool = setting(
        "metrics",
        False,
        "yes or no",
        "whether the metrics port asks for a user with the tag monitoring; /metrics on the web port"
        " always does",
        reload=True,
    )

    amqps_port: int = setting(
        "tls", 5671, "port", "AMQP 0-9-1 over TLS, if there is a certificate; 0 for any free port"
    )
    wss_port: int = setting(
        "tls",
        0,
        "optional port",
        "AMQP over WebSocket over TLS, if there is a certificate; 0 for none, -1 for any free port",
    )
    https_port: int = setting(
        "tls", 15671, "port", "web app over TLS, if there is a certificate; 0 for any free port"
    )
    tls_cert_file: Path | None = setting(
        "tls",
        None,
        "path",
        "certificate chain (PEM); without one there is no TLS",
        reload=True,
    )
    tls_key_file: Path | None = setting(
        "tls",
        None,
        "path",
        "private key (PEM); if empty it is in the certificate's file",
        reload=True,
    )
    tls_names_dir: Path | None = setting(
        "tls",
        None,
        "path",
        "directory of certificates for single names (SNI): shop.example.pem, or _.example.pem for"
        " every name below example; each with its key, in it or in a .key file beside it",
        reload=True,
    )
    tls_min_version: str = setting(
        "tls", "1.2", "tls version", "oldest TLS that is spoken: 1.2 or 1.3", reload=True
    )
    tls_ciphers: str = setting(
        "tls", "", "text", "ciphers of TLS 1.2, in OpenSSL's words; its own if empty", reload=True
    )
    tls_ca_file: Path | None = setting(
        "tls",
        None,
        "path",
        "authorities (PEM) whose client certificates are believed",
        reload=True,
    )
    tls_verify: str = setting(
        "tls",
        "none",
        "tls verify",
        "certificates of AMQP clients: none is asked for, optional, or required",
        reload=True,
    )
    tls_login_from: str = setting(
        "tls",
        "distinguished_name",
        "tls login",
        "what of its certificate names the user who logs in with EXTERNAL: distinguished_name,"
        " common_name or subject_alternative_name",
        reload=True,
    )
    tls_login_san: str = setting(
        "tls",
        "dns",
        "tls san",
        "kind of subject alternative name that is meant: dns, email, ip or uri",
        reload=True,
    )
    tls_handshake_timeout: float = setting(
        "tls",
        5.0,
        "time",
        "time from accepting a connection to the end of the TLS handshake",
        least=0.1,
        reload=True,
    )
    tls_handshakes_max: int = setting(
        "tls",
        1024,
        "count",
        "TLS handshakes that may be under way at a time, on the broker's ports and on the web port"
        " each; one more ends the oldest of the address that has most",
        least=16,
        reload=True,
    )
    tls_handshakes_address_max: int = setting(
        "tls",
        512,
        "count",
        "of these, those of one address (/64 for IPv6); one more ends its oldest",
        least=8,
        reload=True,
    )

    default_user: str = setting(
        "login",
        "guest",
        "name",
        "first administrator, made when the data directory is new; guest only from loopback",
    )
    default_password: str = setting(
        "login",
        "guest",
        "secret",
        "the first administrator's password; a file or a variable hides it better than an option",
        secret=True,
    )
    default_password_file: Path | None = setting(
        "login", None, "path", "file that holds the first administrator's password"
    )
    password_length_min: int = setting(
        "login",
        0,
        "count",
        "characters that a new password must have, in the web app, the HTTP API, ctl and imported"
        " definitions; passwords that were set before, and hashes, are not checked",
        reload=True,
    )
    login_failures_max: int = setting(
        "login",
        10,
        "count",
        "wrong passwords a minute for one user from one address; then the two have to wait, unless"
        " that user was let in from there within login_trusted_for",
        least=1,
        reload=True,
    )
    login_address_failures_max: int = setting(
        "login",
        300,
        "count",
        "wrong passwords a minute from one address for all users that are not trusted there",
        least=1,
        reload=True,
    )
    login_trusted_for: float = setting(
        "login",
        86_400.0,
        "time",
        "for so long after a login its user does not wait at its address, however many wrong"
        " passwords come from there",
        least=0,
        reload=True,
    )
    login_backoff_max: float = setting(
        "login",
        60.0,
        "time",
        "longest wait imposed after too many failed logins",
        least=1,
        reload=True,
    )

    login_refusal_delay: float = setting(
        "login",
        5.0,
        "time",
        "a login that is refused because of too many wrong passwords, or too many logins at once,"
        " is answered later by half to all of this",
        least=0,
        most=30,
        reload=True,
    )
    logins_waiting_max: int = setting(
        "login",
        1024,
        "count",
        "logins that may wait for their password to be checked; one more is refused, or takes the"
        " place of one from the address that has most",
        least=1,
        reload=True,
    )
    logins_address_max: int = setting(
        "login",
        256,
        "count",
        "logins from one address (/64 for IPv6; the Unix socket is one) that may wait so; one more"
        " is refused",
        least=1,
        reload=True,
    )
    rehash_at_login: bool = setting(
        "login",
        False,
        "yes or no",
        "a login replaces an imported password hash by argon2id, which other brokers cannot read",
        reload=True,
    )

    stuck_after: float = setting(
        "queues",
        60.0,
        "time",
        "with messages delivered, and none of them acknowledged for this long, a queue or consumer"
        " is shown as stuck",
        least=1,
        reload=True,
    )

    problem_grace: float = setting(
        "queues",
        60.0,
        "time",
        "a queue that has no consumer, is at a limit or grows is listed among the problems when it"
        " has been so for this long",
        reload=True,
    )
    refused_backlog_max: int = setting(
        "queues",
        4096,
        "count",
        "dead letters of one queue, or due messages of one delayed exchange, that may wait for a"
        " full queue to take them; while as many wait, no further one leaves. The same number of"
        " messages that a full queue refuses may wait to be dead-lettered to very many queues;"
        " further ones are discarded",
        least=1,
        most=1_000_000,
    )
    stream_filter_values_max: int = setting(
        "queues",
        1024,
        "count",
        "values and headers that a stream consumer's filter may name; more are refused with 406",
        least=1,
        most=65_536,
    )
    stream_filter_bytes_max: int = setting(
        "queues",
        64 * 1024,
        "size",
        "bytes of those values and headers together; more are refused with 406",
        least=256,
        most=16 * 1024 * 1024,
    )
    stream_offsets_max: int = setting(
        "queues",
        10_000,
        "count",
        "consumer tags whose place a stream keeps; of those that do not consume, the one stored"
        " longest ago makes room for one more, and the log and the queue's page tell",
        least=1,
        most=10_000_000,
    )
    stream_index_items: int = setting(
        "queues",
        262_144,
        "count",
        "keys of messages in one file of the random index of streams; while it is filled it takes"
        " 32 bytes of memory for each, once for each virtual host with indexed streams",
        least=1024,
        most=4_194_304,
    )
    stream_search_results_max: int = setting(
        "queues",
        1000,
        "count",
        "messages that one search in a stream may ask for; more are refused",
        least=1,
        most=10_000,
    )
    stream_search_reads_max: int = setting(
        "queues",
        10_000,
        "count",
        "messages that one search reads to compare them with the key; the answer says where that"
        " was not enough",
        least=1,
        most=10_000_000,
    )
    stream_search_fetches_max: int = setting(
        "queues",
        1000,
        "count",
        "requests to the object store that one search in a stream makes; the answer says where that"
        " was not enough",
        least=1,
        most=1_000_000,
        reload=True,
    )
    stream_index_local_max: int = setting(
        "queues",
        256 * 1024 * 1024,
        "size",
        "bytes of finished index files that stay on this disk, for each virtual host with a stream"
        " that has stream-tier; older ones go into the object store, all but their filters",
        least=0,
        reload=True,
    )
    stream_search_timeout: float = setting(
        "queues",
        20.0,
        "time",
        "how long one search looks for messages; the answer says where that was not enough",
        least=0.1,
        most=600.0,
    )
    history_retention: float = setting(
        "queues",
        604_800.0,
        "time",
        "how long the history of a virtual host keeps its records where no policy says so"
        " (history-retention)",
        least=1,
        most=3_153_600_000.0,
    )
    history_events_buffer: int = setting(
        "queues",
        32 * 1024 * 1024,
        "size",
        "events of histories are given up, and counted, while this number of bytes of messages"
        " waits to be written (history-events)",
        least=0,
        reload=True,
    )
    stream_searches_max: int = setting(
        "queues",
        4,
        "count",
        "searches in streams at the same time; further ones are refused",
        least=1,
        most=256,
    )
    delayed_cancelled_max: int = setting(
        "queues",
        250_000,
        "count",
        "cancelled messages that are not yet due, of one delayed exchange; no more can be cancelled"
        " until some are",
        least=1,
        most=100_000_000,
    )
    transfers_at_once: int = setting(
        "queues",
        4,
        "count",
        "moves and copies between queues that run at the same time; the others wait",
        least=1,
        most=64,
    )
    transfers_max: int = setting(
        "queues",
        100,
        "count",
        "moves and copies between queues that run or wait; as many that are over stay listed",
        least=1,
        most=10_000,
    )
    hash_ring_weights_max: int = setting(
        "queues",
        16_384,
        "count",
        "weights of all bindings of one consistent-hash exchange with a ring, together; each unit"
        " takes about 10 kB of memory; more are refused with 406",
        least=1,
        most=1_000_000,
    )
    queues_max: int = setting(
        "queues",
        250_000,
        "count",
        "queues a virtual host may have; one more is refused with 406. The limit max-queues of a"
        " virtual host may be lower",
        least=1,
        most=100_000_000,
    )
    exchanges_max: int = setting(
        "queues",
        100_000,
        "count",
        "exchanges a virtual host may have; one more is refused with 406",
        least=16,
        most=100_000_000,
    )
    bindings_max: int = setting(
        "queues",
        1_000_000,
        "count",
        "bindings a virtual host may have; one more is refused with 406",
        least=1,
        most=100_000_000,
    )
    arguments_max: int = setting(
        "queues",
        512 * 1024 * 1024,
        "size",
        "memory for the arguments of all queues, exchanges and bindings of a virtual host, such as"
        " the headers that bindings want; what is declared beyond it is refused with 406",
        least=4096,
    )
    policies_max: int = setting(
        "queues",
        5_000,
        "count",
        "policies a virtual host may have, and as many operator policies",
        least=1,
        most=100_000,
    )
    policy_steps_max: int = setting(
        "queues",
        3_000,
        "count",
        "instructions of all patterns of a virtual host's policies, once compiled, that one name is"
        " compared with, and as many of its operator policies: one takes up to 2 microseconds."
        " Patterns that begin with ^ and letters or digits count for names that begin so; a simple"
        " one has 5 to 20; a policy beyond it is refused with 400",
        least=1_000,
        most=10_000_000,
    )
    parameters_max: int = setting(
        "queues",
        5_000,
        "count",
        "parameters a virtual host may have, such as shovels and federation upstreams, and"
        " global parameters",
        least=1,
        most=1_000_000,
    )
    topic_visits_max: int = setting(
        "queues",
        200_000,
        "count",
        "steps that routing one message through a topic exchange may take with the longest possible"
        " key; a binding whose wildcards would need more is refused with 406",
        least=1_000,
        most=100_000_000,
    )
    headers_comparisons_max: int = setting(
        "queues",
        50_000,
        "count",
        "values that routing one message through a headers exchange may compare; a binding with"
        " x-match=all that would need more is refused with 406",
        least=1_000,
        most=100_000_000,
    )

    no_sync: bool = setting(
        "store",
        False,
        "yes or no",
        "never wait for the disk: a power cut may lose confirmed messages",
    )
    sync_method: str = setting(
        "store",
        "measured",
        "sync method",
        "how files are synced: fdatasync of each, one syncfs, or what measurements say is faster",
    )
    segment_size: int = setting(
        "store",
        8 * 1024 * 1024,
        "size",
        "size at which a queue begins its next file",
        least=64 * 1024,
        most=1024 * 1024 * 1024,
    )
    segment_space_ahead: int = setting(
        "store",
        64 * 1024,
        "size",
        "zeros that the last file of a queue gets at a time behind its records while it is written "
        "in many small rounds, so that a sync writes no metadata; larger rounds get more; 0: none, "
        "as is best where a file system copies on write",
        most=1024 * 1024,
    )
    segment_direct_files: int = setting(
        "store",
        64,
        "count",
        "files with space ahead that may be open for direct I/O, so that rounds spare the page"
        " cache and small ones need no thread, at most an eighth of open_files_max; 0: none",
        most=4096,
    )
    tail_memory: int = setting(
        "store",
        64 * 1024 * 1024,
        "size",
        "memory for messages not yet written, over all queues; while it is full, publishers wait,"
        " but for those whose messages are few: they have a quarter more of it together; written"
        " ones that stay for their consumers take a quarter more at most",
        least=1024 * 1024,
    )
    embed_below: int = setting(
        "store",
        4096,
        "size",
        "a body of this size or more that goes to several queues is written once for all",
    )
    body_file_size: int = setting(
        "store",
        16 * 1024 * 1024,
        "size",
        "size at which the next file of shared bodies begins",
        least=64 * 1024,
        most=1024 * 1024 * 1024,
    )
    body_own_file: int = setting(
        "store",
        4_000_000,
        "size",
        "a shared body of this size or more has a file of its own",
        least=4096,
        most=1024 * 1024 * 1024,
    )
    body_write_buffer: int = setting(
        "store",
        1024 * 1024,
        "size",
        "shared bodies are written when this number of bytes has come",
        least=64 * 1024,
        most=64 * 1024 * 1024,
    )
    body_collect_rate: int = setting(
        "store",
        64 * 1024 * 1024,
        "size",
        "bytes a second that may be copied to give the room of dead shared bodies back",
        least=64 * 1024,
    )
    body_collect_quiet: float = setting(
        "store",
        15.0,
        "time",
        "a half-dead file of shared bodies is rewritten when nothing in it died for this long",
    )
    message_store_index: str = setting(
        "store",
        "ram",
        "index",
        "where the places of shared bodies are kept: ram, or leveldb in constant memory",
    )
    message_store_index_memory: int = setting(
        "store",
        16 * 1024 * 1024,
        "size",
        "memory of an index in LevelDB: two write buffers, the rest is cache",
        least=1024 * 1024,
    )
    message_store_index_write_buffer: int = setting(
        "store",
        4 * 1024 * 1024,
        "size",
        "bytes that LevelDB gathers before it sorts them into a file",
        least=64 * 1024,
    )
    message_store_index_verify_checksums: bool = setting(
        "store", False, "yes or no", "LevelDB checks what it reads"
    )
    message_store_index_sync: bool = setting(
        "store",
        False,
        "yes or no",
        "LevelDB waits for the disk at every write; needless, the index can be rebuilt",
    )
    message_store_index_open_files: int = setting(
        "store", 32, "count", "files that LevelDB keeps open", least=16, most=1000
    )
    bloom_filter_size: int = setting(
        "store",
        1_000_000,
        "count",
        "shared bodies that the index in LevelDB is made for; more make it slower, never wrong",
        least=1000,
        most=1_000_000_000,
    )
    disk_free_limit: int = setting(
        "store",
        0,
        "size",
        "with less free space nothing is published; 0 for tail_memory or three segments if "
        "that is more, and at least 50 MiB",
        reload=True,
    )
    disk_reserve: int = setting(
        "store",
        16 * 1024 * 1024,
        "size",
        "space kept in a file of its own, given back when the disk is full; 0 for none",
    )
    disk_stall_after: float = setting(
        "store",
        5.0,
        "time",
        "a sync that takes longer is reported as a stalled disk",
        least=0.1,
        reload=True,
    )
    read_retry_after: float = setting(
        "store",
        1.0,
        "time",
        "after a read that the disk failed, what waits for it is tried again this much later",
        least=0.1,
    )
    memory_high_watermark: int | float = setting(
        "store",
        0.6,
        "memory",
        "with more memory in use nothing is published: a size, or a share of the machine's",
        reload=True,
    )

    tier_uploads_at_once: int = setting(
        "tiers",
        2,
        "count",
        "segments that are put into the object store at a time; each is in memory meanwhile",
        least=1,
        most=64,
        reload=True,
    )
    tier_reads_at_once: int = setting(
        "tiers",
        16,
        "count",
        "blocks of 1 MiB that are fetched from the object store at a time",
        least=1,
        most=256,
        reload=True,
    )
    tier_read_ahead: int = setting(
        "tiers",
        16 * 1024 * 1024,
        "size",
        "how much is fetched ahead of a consumer that reads on in the object store",
        least=1024 * 1024,
        reload=True,
    )
    tier_cache_max: int = setting(
        "tiers",
        1024 * 1024 * 1024,
        "size",
        "disk space for copies of segments that were read from the object store",
        least=16 * 1024 * 1024,
        reload=True,
    )
    tier_read_patience: float = setting(
        "tiers",
        30.0,
        "time",
        "a consumer that waits longer than this for the object store is cancelled",
        least=0.1,
        reload=True,
    )
    tier_retry_max: float = setting(
        "tiers",
        60.0,
        "time",
        "longest pause before what the object store did not do is tried again",
        least=0.1,
        reload=True,
    )
    tier_timeout: float = setting(
        "tiers", 30.0, "time", "longest wait for an answer of the object store", least=0.1
    )
    tier_grace: float = setting(
        "tiers",
        7 * 86400,
        "time",
        "an object that is no longer needed is deleted this much later: so old a backup may be"
        " and still find its objects",
        least=0,
        reload=True,
    )
    tiers_nice: int = setting(
        "tiers",
        5,
        "count",
        "steps of priority (nice) that the tiers process stays behind the broker; 0 for none",
        most=19,
    )

    reports_schedule: str = setting(
        "reports", "5 * * * *", "schedule", "when reports are computed (cron's five fields, UTC)"
    )
    reports_daily_schedule: str = setting(
        "reports",
        "20 0 * * *",
        "schedule",
        "when the reports that are not computed by reports_schedule are (cron's five fields, UTC)",
    )
    reports_nice: int = setting(
        "reports",
        10,
        "count",
        "steps of priority (nice) that reports stay behind the broker; 0 for none",
        most=19,
    )
    reports_waiting_max: int = setting(
        "reports",
        100,
        "count",
        "runs of reports that may wait behind the one under way, a quarter of them asked for by"
        " one user; one more is refused",
        least=4,
        reload=True,
    )
    reports_close_after: int = setting(
        "reports",
        2 * 86400,
        "time",
        "a month of the cost statement is closed this long after its end; it does not change then",
        least=0,
    )
    smtp_url: str = setting(
        "reports",
        "",
        "secret",
        "the server that mails results: smtp://user:password@host:587 (STARTTLS, except to this"
        " machine) or smtps://host:465; empty: no mail",
        secret=True,
        needed=False,
        printable=True,
    )
    smtp_from: str = setting(
        "reports", "leveret@localhost", "name", "whom mails with results are from"
    )
    spark_master: str = setting(
        "reports",
        "local[*]",
        "name",
        "where Spark runs: local[*], spark://host:port, k8s://…, yarn, or sc://host:port",
    )
    spark_driver_memory: int = setting(
        "reports", 512 * 1024 * 1024, "size", "heap of the Spark driver", least=256 * 1024 * 1024
    )
    spark_options: tuple[str, ...] = setting(
        "reports",
        (),
        "spark options",
        "further options of Spark, such as spark.driver.host=10.0.0.5 for a cluster",
    )
    spark_keep: int = setting(
        "reports",
        60,
        "time",
        "Spark is kept so long after a run for the next one, which then starts at once; 0 ends it"
        " when no run waits",
        least=0,
        most=3600,
        reload=True,
    )
    spark_keep_memory: int = setting(
        "reports",
        1024 * 1024 * 1024,
        "size",
        "Spark whose processes take more memory than this after a run is not kept for the next one",
        least=0,
        reload=True,
    )
    spark_class_archive: int = setting(
        "reports",
        256 * 1024 * 1024,
        "size",
        "disk space in run/java of data_dir for Spark's classes as Java keeps them in memory (about"
        " 180 MB), with which Spark starts with half of the CPU; they are put there after the first"
        " run, when no Spark runs and 2 GiB of memory are available, with about 40 s of CPU and 1.3"
        " GB of memory; with too little space or 0 never",
        least=0,
        reload=True,
    )
    history_bytes_max: int = setting(
        "reports",
        512 * 1024 * 1024,
        "size",
        "disk space for the history of rates and depths that charts show (a day by the minute, a "
        "month by ten minutes, a year by the hour); where it is short the busiest objects are "
        "kept; 0 keeps none",
        least=0,
    )
    object_store: str = setting(
        "reports",
        "",
        "object store",
        "where segments of streams with stream-tier go, and usage tables and results of reports are"
        " copied after each run: s3://bucket/prefix, with credentials in the environment"
        " (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or file:///directory; empty: tables nowhere,"
        " segments to objects/ in data_dir",
    )
    object_store_endpoint: str = setting(
        "reports",
        "",
        "text",
        "of an S3 store that is not Amazon's, such as http://minio:9000",
    )
    object_store_region: str = setting(
        "reports", "", "text", "of the S3 store; if empty that of the environment, or us-east-1"
    )
    java_home: Path | None = setting(
        "reports", None, "path", "Java 17 or newer; if empty the system's, else the one from PyPI"
    )
    usage_interval: int = setting(
        "reports", 10, "time", "usage is written to the feed this often", least=1, most=3600
    )
    usage_lines_keep: int = setting(
        "reports",
        2 * 86400,
        "time",
        "the feed's own lines are deleted so long after their hour, once they are in the tables",
        least=0,
    )
    usage_hourly_keep: int = setting(
        "reports", 93 * 86400, "time", "usage older than this is kept by the day only", least=86400
    )
    usage_keep: int = setting(
        "reports", 400 * 86400, "time", "usage older than this is deleted", least=86400
    )

    bridges_nice: int = setting(
        "bridges",
        5,
        "count",
        "steps of priority (nice) that shovels stay behind the broker; 0 for none",
        most=19,
    )
    bridges_memory: int = setting(
        "bridges",
        32 * 1024 * 1024,
        "size",
        "messages under way that one shovel holds; beyond it the source is not read",
        least=64 * 1024,
    )
    bridges_connecting_max: int = setting(
        "bridges",
        20,
        "count",
        "connections that shovels and links open at a time to each address",
        least=1,
        most=10_000,
    )
    bridges_allowed: tuple[str, ...] = setting(
        "bridges",
        (),
        "list",
        "names, addresses or networks that shovels may connect to; all others are refused unless it"
        " is empty. What is named here may be a metadata or link-local address, too",
    )
    bridges_denied: tuple[str, ...] = setting(
        "bridges",
        (),
        "list",
        "names, addresses or networks that shovels may not connect to; metadata and link-local"
        " addresses are refused anyway",
    )
    secrets_key: Path | None = setting(
        "bridges",
        None,
        "path",
        "file of the keys that encrypt passwords in definitions of shovels and upstreams at rest: a"
        " line of 64 hexadecimal digits each, the first encrypts; made if it is not there. By"
        " default secrets_key in the data directory, which backups leave out",
    )
    bridges_certificates: tuple[str, ...] = setting(
        "bridges",
        (),
        "named paths",
        "PEM files by name: what cacertfile, certfile and keyfile in the URI of a shovel may name,"
        " such as corporate=/etc/ssl/corp.pem",
    )

    log_level: str = setting("log", "info", "level", "debug, info, warning or error", reload=True)
    log_format: str = setting(
        "log", "text", "log format", "text, or json for one object per line", reload=True
    )
    log_lines_per_second: int = setting(
        "log",
        20,
        "count",
        "lines a second that one address, or one kind of line without an address, may write, with"
        " ten seconds' worth at once; more are counted and reported every 10 seconds;"
        " 0 for no limit",
        reload=True,
    )

    #: The command line it was read from. Not a setting.
    argv: tuple[str, ...] = field(default=(), compare=False, repr=False)
    #: What was odd but harmless while loading; the commands print it. Not a setting.
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def control_socket(self) -> Path:
        return self.data_dir / "control.sock"

    @property
    def secrets_key_file(self) -> Path:
        return self.secrets_key or self.data_dir / "secrets_key"

    @property
    def run_dir(self) -> Path:
        """Files that are true only while the appliance runs."""
        return self.data_dir / "run"

    @property
    def local_socket(self) -> Path:
        """Where the process that runs shovels speaks AMQP with the broker."""
        return self.run_dir / "local.sock"

    @property
    def relay_socket(self) -> Path:
        """Where the web process hands over browsers' AMQP connections."""
        return self.run_dir / "relay.sock"

    @property
    def tier_socket(self) -> Path:
        """Where the broker gives its tasks to the tiers process."""
        return self.run_dir / "tiers.sock"

    @property
    def tier_store(self) -> str:
        """The place of the tiers in the object store, as an address."""
        place = self.object_store.rstrip("/") or f"file://{self.data_dir / 'objects'}"
        return f"{place}/tiers"

    @property
    def tier_store_is_inside(self) -> bool:
        """Whether that is in the data directory: then no other appliance uses it."""
        path = self.tier_store.removeprefix("file://")
        return Path(path).is_relative_to(self.data_dir)

    @property
    def addresses_file(self) -> Path:
        """JSON: listener name to [address, port], and the process ids."""
        return self.run_dir / "addresses.json"


def settings() -> Iterator[Setting]:
    """The table, in the order of `Config`."""
    for item in dataclasses.fields(Config):
        if "kind" in item.metadata:
            yield Setting(name=item.name, default=item.default, **item.metadata)


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Read the command line, the environment and the INI file into a `Config`.

    Raises `ConfigError`. Relative paths are taken from the working directory, those in the INI
    file from the file's directory.
    """
    table = {item.name: item for item in settings()}
    warnings: list[str] = []
    options, file_option = from_command_line(argv, table)
    variables = from_environment(environ, table, warnings)
    file = file_option if file_option is not None else environ.get("LEVERET_CONFIG")
    values: dict[str, Any] = {}
    values.update(from_file(file, table, SECTIONS, warnings))
    values.update(variables)
    values.update(options)
    return _checked(values, tuple(argv), tuple(warnings))


def in_force(config: Config, kept: Mapping[str, Any]) -> str:
    """The settings that differ from their defaults, as a child reads them with `as_in_force`; those
    in `kept` have other values for it."""
    changed = {}
    for item in settings():
        value = kept.get(item.name, getattr(config, item.name))
        # Equal is not the same: a number may be a size, or a share of the memory.
        if value != item.default or type(value) is not type(item.default):
            changed[item.name] = value
    return json.dumps(changed, default=str)


def as_in_force(text: str, argv: Sequence[str]) -> Config:
    """The settings that a process's supervisor has, whatever the file says meanwhile. `argv` is its
    command line, which is read again on SIGHUP."""
    values = json.loads(text)
    for item in settings():
        value = values.get(item.name)
        if isinstance(value, list):
            values[item.name] = tuple(value)
        elif value is not None and item.kind == "path":
            values[item.name] = Path(value)
    return Config(**values, argv=tuple(argv))


def help_text(command: str, summary: str) -> str:
    """What a command prints for `--help`."""
    lines = [f"usage: {program()} {command} [options]", "", summary, "", "options:"]
    lines += _help_row("--config FILE", f"INI file; else LEVERET_CONFIG, else {DEFAULT_FILE}")
    for section, title in SECTIONS.items():
        lines += ["", f"{title}:"]
        for item in settings():
            if item.section == section:
                value = "" if item.is_flag else " " + item.kind.replace(" ", "-").upper()
                default = item.shown_default()
                shown = f" ({default})" if default and not item.secret else ""
                shown += " [SIGHUP]" if item.reload else ""
                lines += _help_row(item.option + value, item.text + shown)
    lines += [
        "",
        "The same names work as INI keys and as LEVERET_* variables.",
        "Those marked are read again on SIGHUP.",
    ]
    return "\n".join(lines)


def _help_row(option: str, text: str) -> list[str]:
    return [f"  {option:<30} {text}"] if len(option) < 30 else [f"  {option}", f"{'':<33}{text}"]


def _checked(values: dict[str, Any], argv: tuple[str, ...], warnings: tuple[str, ...]) -> Config:
    """Resolve paths, read the password's file, and refuse what does not fit together."""
    file = values.get("default_password_file")
    if file is not None:
        if "default_password" in values:
            raise ConfigError("give default_password or default_password_file, not both")
        try:
            password = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read default_password_file {file}: {error}") from None
        if not password:
            raise ConfigError(f"default_password_file {file} is empty")
        values["default_password"] = password
    if values.get("default_user", "guest") != "guest" and "default_password" not in values:
        raise ConfigError("default_user needs default_password or default_password_file")
    if values.get("tls_key_file") is not None and values.get("tls_cert_file") is None:
        raise ConfigError("tls_key_file needs tls_cert_file")
    if values.get("tls_verify", "none") != "none" and values.get("tls_ca_file") is None:
        raise ConfigError(f"tls_verify = {values['tls_verify']} needs tls_ca_file")
    for name, value in values.items():
        if isinstance(value, Path):
            values[name] = value.absolute()
    values.setdefault("data_dir", Path("data").absolute())
    config = Config(**values, argv=argv, warnings=warnings)
    sockets = (config.control_socket, config.relay_socket, config.local_socket, config.tier_socket)
    for path in (*sockets, config.unix_path):
        if path is not None and len(str(path).encode()) > SOCKET_PATH_MAX:
            setting_of_it = "unix_path" if path == config.unix_path else "data_dir"
            raise ConfigError(f"{path}: too long for a Unix socket; use a shorter {setting_of_it}")
    return config
