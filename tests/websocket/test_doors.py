"""AMQP over both doors of a running appliance: the broker's own port and the web port's relay."""

import contextlib
import socket
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from management.relay import proxy_header
from tests.amqp import raw
from tests.appliance import Appliance
from tests.websocket.test_relay import is_whole

DOORS = ["ws", "http"]


class MessageSocket:
    """Looks like a socket to the raw client; each message that comes must be whole frames."""

    def __init__(self, url: str, cut: int = 0, **options: Any) -> None:
        self.open = contextlib.ExitStack()
        self.connection: ClientConnection = self.open.enter_context(
            connect(url, **options, open_timeout=60)
        )
        self.cut = cut
        self.timeout: float | None = 10.0

    def sendall(self, data: bytes) -> None:
        step = self.cut or len(data)
        for start in range(0, len(data), step):
            self.connection.send(data[start : start + step])

    def recv(self, size: int) -> bytes:
        try:
            message = self.connection.recv(self.timeout)
        except ConnectionClosed:
            return b""
        except TimeoutError:
            raise TimeoutError("no message came") from None
        assert isinstance(message, bytes)
        assert is_whole(message), message[:100]
        return message

    def settimeout(self, timeout: float | None) -> None:
        self.timeout = timeout

    def close(self) -> None:
        self.open.close()


class Client(raw.Client):
    """A raw AMQP client over a WebSocket, not yet signed in."""

    def __init__(self, url: str, cut: int = 0, **options: Any) -> None:
        self.socket: Any = MessageSocket(url, cut, **options)
        self.timeout = 10.0
        self.buffer = b""
        self.frame_max = 131072
        self.tune = None
        self.server_properties = {}
        self.keep_heartbeats = False

    def use(self, **handshake: Any) -> "Client":
        self.start(**handshake)
        self.send_method(0, "connection.open", virtual_host="/")
        self.expect("connection.open-ok", 0)
        self.call(1, "channel.open")
        return self


def url_of(leveret: Appliance, door: str) -> str:
    return (leveret.ws_url if door == "ws" else leveret.http_url.replace("http", "ws")) + "/amqp"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("cut", [0, 1, 7])
def test_it_carries_a_day_s_work(shared_leveret: Appliance, door: str, cut: int) -> None:
    queue = f"websocket.{door}.{cut}"
    with Client(url_of(shared_leveret, door), cut).use() as client:
        client.call(1, "queue.declare", queue=queue, durable=True)
        client.call(1, "confirm.select")
        # The last one is written to the client in parts.
        bodies = [b"", b"x", b"y" * (3000 if cut else 300_000), b"z" * (3000 if cut else 3_000_000)]
        for number, body in enumerate(bodies, 1):
            client.publish(1, "", queue, body, delivery_mode=2)
            assert client.expect("basic.ack", 1).delivery_tag == number
        client.call(1, "basic.consume", queue=queue, consumer_tag="t")
        for body in bodies:
            message = client.expect_message("basic.deliver", 1)
            assert message.body == body
            client.send_method(1, "basic.ack", delivery_tag=message.tag)
        client.call(1, "basic.cancel", consumer_tag="t")
        client.call(1, "queue.delete", queue=queue)
        client.call(0, "connection.close", reply_code=200)


@pytest.mark.parametrize("door", DOORS)
def test_a_wrong_password_is_refused(shared_leveret: Appliance, door: str) -> None:
    client = Client(url_of(shared_leveret, door))
    client.is_refused("guest", "wrong")
    client.socket.close()


@pytest.mark.parametrize("door", DOORS)
def test_a_wrong_protocol_header_is_answered_and_closed(
    shared_leveret: Appliance, door: str
) -> None:
    with connect(url_of(shared_leveret, door), open_timeout=60) as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(10) == b"AMQP\x00\x00\x09\x01"
        with pytest.raises(ConnectionClosed):
            client.recv(10)


@pytest.mark.parametrize("door", DOORS)
def test_text_is_refused(shared_leveret: Appliance, door: str) -> None:
    with connect(url_of(shared_leveret, door), open_timeout=60) as client:
        client.send("AMQP")
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003


@pytest.mark.parametrize("door", DOORS)
def test_a_page_of_another_site_is_refused(shared_leveret: Appliance, door: str) -> None:
    page = Origin("https://elsewhere.example")
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(url_of(shared_leveret, door), origin=page, open_timeout=60),
    ):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("door", DOORS)
def test_a_rebound_name_is_refused(shared_leveret: Appliance, door: str) -> None:
    url = url_of(shared_leveret, door).replace("127.0.0.1", "attacker.example")
    port = shared_leveret.ws_port if door == "ws" else shared_leveret.http_port
    plain = socket.create_connection(("127.0.0.1", port))
    with pytest.raises(InvalidStatus) as refused, connect(url, sock=plain, open_timeout=60):
        pass
    assert refused.value.response.status_code == 421


@pytest.mark.parametrize("door", DOORS)
def test_the_broker_knows_the_browser_s_own_address(shared_leveret: Appliance, door: str) -> None:
    client = Client(url_of(shared_leveret, door)).use()
    host, port = client.socket.connection.socket.getsockname()[:2]
    rows = httpx.get(
        shared_leveret.http_url + "/api/connections", auth=("guest", "guest"), timeout=60
    ).json()
    mine = [row for row in rows if (row["peer_host"], row["peer_port"]) == (host, port)]
    assert len(mine) == 1
    assert mine[0]["user"] == "guest"
    client.call(0, "connection.close", reply_code=200)


@pytest.mark.parametrize("door", DOORS)
def test_an_administrator_can_close_a_browsers_connection(
    shared_leveret: Appliance, door: str
) -> None:
    client = Client(url_of(shared_leveret, door)).use()
    port = client.socket.connection.socket.getsockname()[1]
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        rows = api.get("/api/connections").json()
        name = next(row["name"] for row in rows if row["peer_port"] == port)
        where = "/api/connections/" + name.replace(" ", "%20").replace(">", "%3E")
        assert api.delete(where, headers={"X-Reason": "for a test"}).status_code == 204
    told = client.expect("connection.close", 0)
    assert told.reply_code == 320
    assert "for a test" in told.reply_text
    client.send_method(0, "connection.close-ok")
    assert client.socket.recv(1) == b""


@pytest.mark.parametrize(
    ("address", "code"), [("127.0.0.1", None), ("203.0.113.7", 403), ("::ffff:203.0.113.7", 403)]
)
def test_guest_is_let_in_only_from_the_browsers_own_loopback(
    shared_leveret: Appliance, address: str, code: int | None
) -> None:
    """The relay's socket is local, whoever the browser is: what the PROXY header says counts."""
    client = Client.__new__(Client)
    client.buffer, client.timeout, client.keep_heartbeats = b"", 60.0, False
    client.socket = socket.socket(socket.AF_UNIX)
    client.socket.settimeout(60)
    client.socket.connect(str(shared_leveret.data_dir / "run" / "relay.sock"))
    client.send(proxy_header({"client": (address, 50123), "server": ("127.0.0.1", 15672)}))
    client.send(raw.PROTOCOL_HEADER)
    client.expect("connection.start", 0)
    client.send(raw.start_ok(client_properties={"capabilities": raw.CAPABILITIES}))
    if code is None:
        client.expect("connection.tune", 0)
    else:
        assert client.expect("connection.close", 0).reply_code == code
    client.socket.close()


def test_the_private_socket_is_private(shared_leveret: Appliance) -> None:
    relay = shared_leveret.data_dir / "run" / "relay.sock"
    assert relay.is_socket()
    assert relay.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as direct:
        direct.connect(str(relay))
        direct.settimeout(60)
        direct.sendall(raw.PROTOCOL_HEADER * 2)
        try:
            assert direct.recv(100) == b""
        except ConnectionResetError:
            pass
