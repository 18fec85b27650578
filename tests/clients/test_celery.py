"""Celery, as it comes: a worker, results, a chord, ETA, retries, remote control."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


def settings(address: tuple[str, int], backend: str, queue: str) -> dict[str, str]:
    host, port = address
    return {
        "CELERY_BROKER": f"amqp://guest:guest@{host}:{port}//",
        "CELERY_BACKEND": backend,
        "CELERY_QUEUE": queue,
    }


def start_worker(environment: dict[str, str], log: Path, *options: str) -> subprocess.Popen[str]:
    """A worker that is ready for tasks."""
    command = [sys.executable, "-m", "celery", "-A", "tests.clients.celery_tasks", "worker"]
    command += ["--pool=threads", "--concurrency=4", "--loglevel=INFO", *options]
    command += ["-n", f"{environment['CELERY_QUEUE']}@%h"]
    worker = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert worker.stdout is not None
    told = []
    for line in worker.stdout:
        told.append(line)
        if "ready." in line:
            # Nobody reads the rest; the pipe must not fill.
            os.set_blocking(worker.stdout.fileno(), False)
            return worker
    raise AssertionError(f"the worker ended before it was ready:\n{''.join(told)}")


@pytest.fixture(scope="module")
def app(shared_broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The tests' side of a Celery application whose worker runs. Chords need a result backend that
    keeps results: files."""
    results = tmp_path_factory.mktemp("celery-results")
    environment = settings(
        (shared_broker.host, shared_broker.amqp_port), f"file://{results}", "celery-tests"
    )
    worker = start_worker(environment, results)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from tests.clients import celery_tasks

        celery_tasks.app.conf.update(
            broker_url=environment["CELERY_BROKER"],
            result_backend=environment["CELERY_BACKEND"],
            task_default_queue="celery-tests",
        )
        yield celery_tasks
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0, "the worker did not end by itself"


def test_it_runs_tasks_and_brings_results(app: Any) -> None:
    results = [app.add.delay(n, n) for n in range(50)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == [2 * n for n in range(50)]


def test_it_runs_a_chord(app: Any) -> None:
    from celery import chord

    result = chord(app.add.s(n, 1) for n in range(10))(app.total.s())
    assert result.get(timeout=PATIENCE_S) == sum(n + 1 for n in range(10))


def test_it_runs_a_chain_and_a_group(app: Any) -> None:
    from celery import chain, group

    assert chain(app.add.s(1, 2), app.add.s(3), app.add.s(4))().get(timeout=PATIENCE_S) == 10
    assert sorted(group(app.add.s(n, 0) for n in range(5))().get(timeout=PATIENCE_S)) == [*range(5)]


def test_it_keeps_an_eta(app: Any) -> None:
    before = time.time()
    ran_at = app.clock.apply_async(countdown=1).get(timeout=PATIENCE_S)
    assert ran_at - before >= 1


def test_it_retries(app: Any) -> None:
    assert app.third_time_lucky.delay().get(timeout=PATIENCE_S) == 2


def test_it_answers_remote_control(app: Any) -> None:
    (answer,) = app.app.control.ping(timeout=60, limit=1)
    assert list(answer.values()) == [{"ok": "pong"}]


def test_it_brings_results_over_the_broker(
    shared_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rpc backend: a reply queue for each client, results as messages."""
    environment = settings((shared_broker.host, shared_broker.amqp_port), "rpc://", "celery-rpc")
    worker = start_worker(environment, tmp_path)
    try:
        script = (
            "from tests.clients.celery_tasks import add\n"
            "print([add.delay(n, 1).get(timeout=60) for n in range(5)])\n"
        )
        told = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
            timeout=2 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert told.stdout.strip() == "[1, 2, 3, 4, 5]", told.stderr
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)


def test_tasks_for_later_do_not_hold_up_a_plain_one(shared_broker: Any, tmp_path: Path) -> None:
    """More of them wait for their time in the worker than its prefetch allows; it raises that on
    the running consumer, by a method whose meaning depends on the broker's name."""
    environment = settings(
        (shared_broker.host, shared_broker.amqp_port), f"file://{tmp_path}", "celery-later"
    )
    script = (
        "from tests.clients.celery_tasks import add, clock\n"
        "later = [clock.apply_async(countdown=20) for _ in range(6)]\n"
        "print(add.delay(1, 2).get(timeout=60), [each.ready() for each in later])\n"
    )
    worker = start_worker(environment, tmp_path, "--concurrency=1", "--prefetch-multiplier=4")
    try:
        told = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
            timeout=2 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert told.stdout.strip() == f"3 {[False] * 6}", told.stderr
    finally:
        # Asked to end, it would wait for its tasks.
        worker.kill()
        worker.wait(PATIENCE_S)


def test_it_takes_celerys_quorum_queues(shared_broker: Any, tmp_path: Path) -> None:
    """Celery's setting for RabbitMQ 4: queues of type quorum, global QoS off."""
    environment = settings((shared_broker.host, shared_broker.amqp_port), "rpc://", "celery-quorum")
    script = (
        "from tests.clients.celery_tasks import app, add\n"
        "app.conf.task_default_queue_type = 'quorum'\n"
        "app.conf.broker_transport_options = {'confirm_publish': True}\n"
        "with app.connection_for_write() as connection:\n"
        "    queue = app.amqp.queues['celery-quorum']\n"
        "    print(queue(connection.default_channel).declare(), queue.queue_arguments)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
        timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert told.stdout.strip() == "celery-quorum {'x-queue-type': 'quorum'}", told.stderr
