"""Plans: schedules of their own, and who is told of a run by webhook and mail."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import socketserver
import threading
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from broker.settings.config import Config
from management.reports import delivery, plans, process
from management.reports.plans import Plan
from management.reports.process import Reports
from management.reports.runs import Run
from management.reports.schedule import Entry, Timetable
from tests.reports.conftest import reports_in, wait_until
from tests.reports.feeds import TEN

RUN = Run(
    report="refused",
    run_id="20261121T100000Z-aaaaaa",
    state="done",
    asked_by=None,
    asked_at=TEN,
    ended_at=TEN + 9000,
    rows_written=2,
    plans=["ops"],
)


class Hook(http.server.BaseHTTPRequestHandler):
    """Answers with what `answers` says and keeps what it was sent."""

    answers: list[int]
    got: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append({"path": self.path, **json.loads(body)})
        self.send_response(self.answers.pop(0) if self.answers else 204)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Mail(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs."""

    got: list[Message]

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.got.append(message_from_bytes(b"".join(lines)))
            self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")


@pytest.fixture
def server() -> Iterator[Any]:
    """Starts a server of a handler on a free port; the port."""
    started = []

    def start(handler: Any) -> int:
        made = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, daemon=True).start()
        started.append(made)
        return int(made.server_address[1])

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "WAIT_SECONDS", (0.0, 0.0))


def plan(**values: Any) -> Plan:
    return Plan(name="ops", report="refused", **values)


def test_a_webhook_is_told_and_tried_again_and_no_redirect_is_followed(server: Any) -> None:
    class Handler(Hook):
        answers, got = [500, 302], []

    port = server(Handler)
    hook = plan(webhook=f"http://127.0.0.1:{port}/in?key=secret")
    (done,) = delivery.deliver(hook, RUN, lambda _: None, "", "")
    assert (done.kind, done.attempts, done.error) == ("webhook", 3, "")
    assert [got["path"] for got in Handler.got] == ["/in?key=secret"] * 3
    told = Handler.got[-1]
    assert (told["plan"], told["state"], told["rows"]) == ("ops", "done", 2)
    assert told["result"] == f"/api/reports/refused/runs/{RUN.run_id}.json"
    Handler.answers[:] = [500] * 3
    (failed,) = delivery.deliver(hook, RUN, lambda _: None, "", "")
    assert failed.error == "OSError: the webhook answered 500"
    assert "secret" not in failed.error


def test_a_mail_has_the_result_as_a_file_unless_it_is_too_long(server: Any) -> None:
    class Handler(Mail):
        got = []

    url = f"smtp://127.0.0.1:{server(Handler)}"
    to = plan(mail=["ops@example.org", "a@example.org"])
    (done,) = delivery.deliver(to, RUN, lambda _: b"vhost,user\r\n/,anna\r\n", url, "l@example.org")
    assert (done.kind, done.error) == ("mail", "")
    (message,) = Handler.got
    assert message["To"] == "ops@example.org, a@example.org"
    assert message["Subject"] == "Leveret report refused: done (ops)"
    text, file = [part for part in message.walk() if not part.is_multipart()]
    assert "It has 2 rows." in str(text.get_payload())
    assert file.get_filename() == f"refused-{RUN.run_id}.csv"
    assert b"/,anna" in bytes(file.get_payload(decode=True))
    delivery.deliver(to, RUN, lambda _: None, url, "l@example.org")
    assert "not attached" in str(Handler.got[1].get_payload())
    (failed,) = delivery.deliver(to, RUN, lambda _: None, "", "l@example.org")
    assert "the setting is smtp_url" in failed.error


def test_a_plan_takes_the_place_of_the_schedule_of_its_report(tmp_path: Path) -> None:
    reports = reports_in(tmp_path)
    reports._refresh(TEN)
    before = reports._timetable.next_at()
    assert before["traffic"] == before["backlog"] > TEN
    own = {"report": "traffic", "name": "own", "schedule": "0 11 * * *"}
    reports._changes.set_plan(own, "anna")
    reports._changes.set_plan({"report": "backlog", "name": "never"}, "anna")
    by_user = {"report": "traffic", "name": "by user", "by": "user", "schedule": "30 11 * * *"}
    reports._changes.set_plan(by_user, "anna")
    reports._timetable = Timetable()
    reports._refresh(TEN)
    after = reports._timetable.next_at()
    assert (after["traffic"], after["backlog"]) == (TEN + 3_600_000, 0)
    assert reports._timetable.plans()["traffic/by user"] == TEN + 5_400_000
    taken = reports._timetable.take(TEN + 3_600_000)
    assert [(one.report, one.plan) for one in taken if one.plan] == [("traffic", "own")]
    reports._changes.remove_plan("traffic", "own", "anna")
    assert [one.name for one in plans.read(tmp_path / "reports")] == ["by user", "never"]


def test_what_a_plan_asks_for_is_delivered_and_what_a_person_asks_for_is_not(
    tmp_path: Path, server: Any
) -> None:
    class Handler(Hook):
        answers, got = [], []

    hook = f"http://127.0.0.1:{server(Handler)}/"

    async def end_two_runs() -> Run:
        reports = reports_in(tmp_path)
        reports._changes.set_plan({"report": "refused", "name": "ops", "webhook": hook}, "anna")
        reports._end(reports.ask("refused", "anna", {"by": "queue"}), "done")
        reports._ask_on_schedule(Entry("refused", "", {}, "ops"), TEN)
        run = reports._waiting[-1]
        reports._end(run, "failed", "no Java")

        def told() -> bool:
            return bool(reports._runs.read("refused", run.run_id).deliveries)

        await asyncio.to_thread(wait_until, told, "the delivery", 60)
        return reports._runs.read("refused", run.run_id)

    run = asyncio.run(asyncio.wait_for(end_two_runs(), 120))
    wait_until(lambda: bool(Handler.got), "the webhook")
    assert [(got["state"], got["error"]) for got in Handler.got] == [("failed", "no Java")]
    assert [(one.kind, one.error) for one in run.deliveries] == [("webhook", "")]


def test_a_plan_that_is_due_again_stays_due_as_it_was() -> None:
    timetable, entry = Timetable(), Entry("traffic", "0 * * * *", {}, "hourly")
    timetable.refresh([entry], TEN)
    assert timetable.first == TEN + 3_600_000
    timetable.refresh([entry], TEN + 3_600_001)
    assert timetable.take(TEN + 3_600_002) == [entry]
    assert timetable.take(TEN + 3_600_003) == []
    timetable.refresh([], TEN)
    assert timetable.first is None


def test_a_clock_that_is_set_back_does_not_stop_a_schedule() -> None:
    timetable, entry = Timetable(), Entry("traffic", "0 * * * *", {}, "hourly")
    year = 365 * 86_400_000
    timetable.refresh([entry], TEN + year)
    timetable.refresh([entry], TEN)
    assert timetable.first == TEN + 3_600_000
    timetable.take(TEN + year)
    timetable.refresh([entry], TEN + 1)
    assert timetable.first == TEN + 3_600_000


def test_what_is_postponed_stays_so_also_if_the_clock_is_set_back() -> None:
    timetable, entry = Timetable(), Entry("traffic", "0 * * * *", {}, "hourly")
    timetable.refresh([entry], TEN)
    for postponed, now in ((300_000, 20_000), (240_000, 10_000)):
        timetable.postpone(entry, TEN + postponed)
        timetable.refresh([entry], TEN + now)
        assert timetable.first == TEN + postponed


def test_a_schedule_that_has_no_next_time_is_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "reports").mkdir()
    stored = [
        plan(schedule="0 6 30 2 *"),
        Plan(name="own", report="backlog", schedule="0 11 * * *"),
    ]
    plans.store(tmp_path / "reports", stored)
    config = Config(
        data_dir=tmp_path, reports_schedule="61 * * * *", reports_daily_schedule="0 0 31 4 *"
    )
    reports = Reports(config, tmp_path / "reports")
    for _ in range(2):
        reports._refresh(TEN)
    due = {name: at for name, at in reports._timetable.next_at().items() if at}
    assert due == {"backlog": TEN + 3_600_000}
    assert reports._timetable.plans() == {"backlog/own": TEN + 3_600_000}
    said = [record.getMessage() for record in caplog.records if "no next time" in record.message]
    assert [text.split("'")[1] for text in said] == ["0 0 31 4 *", "0 6 30 2 *", "61 * * * *"]
    assert "not computed by it: queue-usage; correct it" in said[2]
    reports._changes.remove_plan("refused", "ops", "anna")
    assert [one.name for one in plans.read(tmp_path / "reports")] == ["own"]


def test_a_run_of_a_clock_that_was_ahead_does_not_hide_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = reports_in(tmp_path)
    usage = tmp_path / "usage"
    usage.mkdir()
    feed = usage / "2026-11-21T09-1.jsonl"
    feed.touch()
    monkeypatch.setattr(process, "_now_ms", lambda: TEN)

    def done(started_at: int) -> None:
        run = reports._runs.new("traffic", None, started_at)
        run.state, run.started_at = "done", started_at
        reports._runs.write(run)

    done(TEN + 365 * 86_400_000)
    os.utime(feed, (TEN / 1000 - 600,) * 2)
    assert reports._has_news("traffic")
    done(TEN - 300_000)
    assert not reports._has_news("traffic")
    os.utime(feed, (TEN / 1000 - 200,) * 2)
    assert reports._has_news("traffic")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"schedule": "hourly"}, "not cron's five fields"),
        ({"schedule": "* * * * * *"}, "not cron's five fields"),
        ({"schedule": "0 6 30 2 *"}, "such a day never comes"),
        ({"schedule": "0 0 31 4,6,9,11 *"}, "such a day never comes"),
        ({"webhook": "file:///etc/passwd"}, "begins with https:// or http://"),
        ({"webhook": "http://a\nb/"}, "begins with https:// or http://"),
        ({"mail": "ops"}, "not an address"),
        ({"mail": "a@b\nBcc: c@d"}, "not an address"),
        ({"by": "moon"}, "by is one of"),
        ({"price": "1"}, "a plan has no 'price'"),
    ],
)
def test_a_wrong_plan_is_refused_with_what_is_right(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plans.checked("traffic", "p", given)
    with pytest.raises(ValueError, match="a plan's name"):
        plans.checked("traffic", "a/b", {})
