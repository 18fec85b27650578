"""The real appliance: it starts, says where it is, survives, refuses, and stops."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError, AMQPError

from tests.appliance import ROOT, Appliance, NotReadyError
from tests.bench.processes import free_port
from tests.ops.test_supervisor import is_running, wait_gone
from tests.promptness import came_within, in_time

pytestmark = pytest.mark.usefixtures("real_starts")

Make = Callable[..., Appliance]


def connect(appliance: Appliance) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(appliance.amqp_url))


def one_line(error: pytest.ExceptionInfo[NotReadyError]) -> str:
    """The single line a failed start printed."""
    lines = str(error.value).split("its log:\n")[1].strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_it_prints_where_everything_is(leveret: Appliance) -> None:
    log = leveret.log()
    assert f"amqp://127.0.0.1:{leveret.amqp_port}" in log
    assert f"ws://127.0.0.1:{leveret.ws_port}" in log
    assert f"http://127.0.0.1:{leveret.http_port}/" in log
    assert f"http://127.0.0.1:{leveret.metrics_port}/metrics" in log
    assert "guest / guest" in log
    assert str(leveret.data_dir) in log
    assert sum("ready" in line for line in log.splitlines()) == 1
    for port in (leveret.amqp_port, leveret.ws_port, leveret.http_port, leveret.metrics_port):
        socket.create_connection(("127.0.0.1", port), 5).close()
    with connect(leveret) as connection:
        connection.channel().queue_declare("q")
    with urllib.request.urlopen(leveret.http_url + "/login", timeout=30) as page:
        assert page.status == 200


def test_it_stops_cleanly_under_load(make_leveret: Make) -> None:
    leveret = make_leveret()
    stopped: list[BaseException] = []
    flowing = threading.Barrier(5)

    def publish(queue: str) -> None:
        try:
            channel = connect(leveret).channel()
            channel.queue_declare(queue, durable=True)
            channel.confirm_delivery()
            for number in range(1_000_000):
                channel.basic_publish("", queue, b"x" * 1000)
                if number == 0:
                    flowing.wait(60)
        except AMQPError as error:
            stopped.append(error)

    def consume(queue: str) -> None:
        try:
            channel = connect(leveret).channel()
            channel.queue_declare(queue, durable=True)
            channel.basic_qos(prefetch_count=10)
            for number, (method, _, _) in enumerate(channel.consume(queue)):
                channel.basic_ack(method.delivery_tag)
                if number == 0:
                    flowing.wait(60)
        except AMQPError as error:
            stopped.append(error)

    threads = [
        threading.Thread(target=work, args=(queue,))
        for work in (publish, consume)
        for queue in ("load 1", "load 2")
    ]
    for thread in threads:
        thread.start()
    flowing.wait(60)
    pids = list(leveret.pids.values())
    leveret.signal(signal.SIGINT)
    assert leveret.wait(60) == 0, leveret.log()
    for thread in threads:
        thread.join(60)
    assert len(stopped) == 4
    assert all(getattr(error, "reply_code", 320) == 320 for error in stopped), stopped
    for pid in pids:
        wait_gone(pid)
    assert "Traceback" not in leveret.log()


def test_it_leaves_nothing_running_when_the_supervisor_is_killed(make_leveret: Make) -> None:
    leveret = make_leveret()
    pids = list(leveret.pids.values())
    channel = connect(leveret).channel()
    channel.confirm_delivery()
    channel.queue_declare("kept", durable=True)
    channel.basic_publish("", "kept", b"1", pika.BasicProperties(delivery_mode=2))
    leveret.kill()
    for pid in pids:
        wait_gone(pid)
    leveret.start()
    with connect(leveret) as connection:
        assert connection.channel().queue_declare("kept", passive=True).method.message_count == 1


def test_it_starts_at_once_on_the_same_ports_after_a_kill(make_leveret: Make) -> None:
    names = ("amqp_port", "ws_port", "http_port", "metrics_port")
    leveret = make_leveret(**{name: free_port() for name in names})
    leveret.kill()
    leveret.start()
    connect(leveret).close()


def test_it_starts_a_killed_broker_again_on_its_port(make_leveret: Make) -> None:
    leveret = make_leveret(amqp_port=free_port())
    port = leveret.amqp_port
    leveret.signal(signal.SIGKILL, "broker")
    deadline = time.monotonic() + 60
    while True:
        try:
            connect(leveret).close()
            break
        except (AMQPConnectionError, OSError):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert leveret.amqp_port == port
    assert "broker ended with signal 9; it is started again" in leveret.log()


@pytest.mark.parametrize("name", ["amqp_port", "ws_port", "http_port", "metrics_port"])
def test_it_refuses_a_port_in_use_with_one_line(make_leveret: Make, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        leveret = make_leveret(start=False, **{name: port})
        with pytest.raises(NotReadyError, match="ended with 69") as caught:
            leveret.start()
    line = one_line(caught)
    assert str(port) in line
    leveret.process = None


def test_it_refuses_a_data_directory_in_use_with_one_line(make_leveret: Make) -> None:
    first = make_leveret()
    second = make_leveret(start=False, data_dir=first.data_dir)
    with pytest.raises(NotReadyError, match="ended with 75") as caught:
        second.start()
    assert str(first.data_dir) in one_line(caught)
    second.process = None
    connect(first).close()


def test_it_refuses_a_data_directory_in_use_by_a_lone_broker(make_broker: Make) -> None:
    first = make_broker()
    second = make_broker(start=False, data_dir=first.data_dir)
    with pytest.raises(NotReadyError, match="ended with 69") as caught:
        second.start()
    assert str(first.data_dir) in one_line(caught)
    second.process = None


def test_it_holds_the_lock_of_its_data_directory(broker: Appliance) -> None:
    with (broker.data_dir / "lock").open("r+") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_it_keeps_its_files_to_its_user(leveret: Appliance) -> None:
    assert leveret.control_socket.stat().st_mode & 0o777 == 0o600
    assert (leveret.data_dir / "secret_key").stat().st_mode & 0o777 == 0o600
    assert leveret.data_dir.stat().st_mode & 0o077 == 0


def test_it_runs_the_broker_alone_and_stops_it(make_broker: Make) -> None:
    broker = make_broker()
    pid = broker.pids["broker"]
    with connect(broker) as connection:
        connection.channel().queue_declare("alone")
    assert broker.stop() == 0
    assert not is_running(pid)
    assert "Traceback" not in broker.log()


def imported(module: str, names: tuple[str, ...]) -> str:
    """Which of the names are imported with the module."""
    code = f"import sys, {module}; print([name for name in {names} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def test_it_imports_no_django_in_the_broker(broker: Appliance) -> None:
    maps = Path(f"/proc/{broker.pids['broker']}/maps").read_text()
    assert "pyarrow" not in maps
    assert imported("broker.server.app", ("django", "pyspark", "uvicorn")) == "[]"


def test_it_imports_no_event_loop_in_the_supervisor() -> None:
    assert imported("management.supervisor", ("asyncio", "ssl", "msgspec")) == "[]"


@in_time
def test_it_starts_again_within_seconds(make_leveret: Make) -> None:
    leveret = make_leveret()
    assert leveret.stop() == 0
    began = time.monotonic()
    leveret.start()
    came_within(began, 0, 10)


def test_it_has_no_guest_when_an_administrator_is_named(make_leveret: Make) -> None:
    leveret = make_leveret(default_user="ada", default_password="lovelace")
    url = f"amqp://ada:lovelace@127.0.0.1:{leveret.amqp_port}/%2F"
    pika.BlockingConnection(pika.URLParameters(url)).close()
    with pytest.raises(AMQPConnectionError):
        connect(leveret)
    assert "ada, with the password that was configured" in leveret.log()
    assert "lovelace" not in leveret.log()


def test_it_gives_the_demo_something_to_show(leveret: Appliance) -> None:
    import sys

    from tests.appliance import ROOT

    demo = subprocess.run(
        [
            sys.executable,
            str(ROOT / "manage.py"),
            "demo",
            "--seconds=4",
            "--rate=60",
            f"--data-dir={leveret.data_dir}",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "LEVERET_CONFIG": ""},
        timeout=60,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr
    closing = demo.stdout.splitlines()[-1]
    for what in ("orders placed", "shipped", "payments taken", "mails sent"):
        assert what in closing
    with connect(leveret) as connection:
        channel = connection.channel()
        audit = channel.queue_declare("shop.audit", passive=True).method
        mail = channel.queue_declare("shop.mail", passive=True).method
    assert audit.message_count > 50
    assert audit.consumer_count == 0
    assert mail.message_count > 0


@pytest.mark.parametrize("what", ["broker", "serve"])
def test_it_ends_with_the_test_run_that_started_it(tmp_path: Path, what: str) -> None:
    import sys

    from tests.appliance import ROOT

    code = (
        "import sys; from pathlib import Path; from tests.appliance import Appliance;"
        f"a = Appliance({what!r}, Path({str(tmp_path)!r})).start();"
        "print(*a.pids.values(), flush=True); import time; time.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert run.stdout is not None
        pids = [int(word) for word in run.stdout.readline().split()]
        assert pids
    finally:
        run.kill()
        run.communicate()
    for pid in pids:
        wait_gone(pid, 30)


def test_a_client_that_reads_nothing_is_cut_off(make_leveret: Make) -> None:
    leveret = make_leveret(http_write_timeout=1)
    descriptors = Path(f"/proc/{leveret.pids['web']}/fd")

    def sockets() -> set[str]:
        found = set()
        for entry in descriptors.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(entry.readlink()))
        return {name for name in found if name.startswith("socket:")}

    with socket.socket() as slow:
        before = sockets()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", leveret.http_port))
        deadline = time.monotonic() + 30
        while not sockets() - before:
            assert time.monotonic() < deadline
        (accepted,) = sockets() - before
        # More answers than the buffers of both sides hold.
        request = b"GET /static/vendor/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        slow.sendall(request * 200)
        while accepted in sockets():
            assert time.monotonic() < deadline, "its connection is still open"
            time.sleep(0.1)
