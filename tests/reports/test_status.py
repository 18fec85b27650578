"""What a report's page says of runs that wait, run and are over, without a run of Spark."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import AsyncRequestFactory

from broker.settings.config import Config
from frontend.views import reports as views
from management.reports import client
from management.reports.client import Reply
from management.reports.runs import STARTING, Delivery, Progress, Run, Runs
from tests.web.report_results import write as write_results

REPORT = "traffic"
NOW = 1_795_000_000_000
ANSWERS = Reply(next_at={REPORT: NOW}, schedules={REPORT: "5 * * * *"})


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Runs:
    """The runs of an appliance whose reports process answers."""
    settings.APPLIANCE = Config(data_dir=tmp_path)

    async def all_vhosts(_: object) -> None:
        return None

    monkeypatch.setattr(views, "visible_vhosts", all_vhosts)
    monkeypatch.setattr(client, "status", lambda _: ANSWERS)
    return Runs(tmp_path / "reports")


def asked(rf: AsyncRequestFactory, query: dict[str, str], *, htmx: bool = False) -> HttpRequest:
    request: Any = rf.get("/", query, headers={"HX-Request": "true"} if htmx else {})
    request.user = SimpleNamespace(name="anna", is_monitoring=True, is_administrator=True)
    return request  # type: ignore[no-any-return]


def begun(runs: Runs, number: int, **fields: Any) -> Run:
    run = runs.new(REPORT, "anna", NOW + number * 1000, fields.pop("parameters", {}))
    for name, value in fields.items():
        setattr(run, name, value)
    runs.write(run)
    return run


async def page(request: HttpRequest) -> str:
    answer: Any = await views.reports(request, REPORT)
    return " ".join(answer.content.decode().split())


async def shown(request: HttpRequest) -> str:
    answer: Any = await views.status(request, REPORT)
    return " ".join(answer.content.decode().split())


async def test_every_run_that_waits_or_runs_is_shown_in_its_order_with_a_cancel_of_its_own(
    runs: Runs, async_rf: AsyncRequestFactory
) -> None:
    by_user = {"by": "user"}
    third = begun(runs, 3, state="waiting", parameters={"by": "exchange"})
    second = begun(runs, 2, state="waiting", parameters=by_user)
    first = begun(runs, 1, state="running", started_at=NOW, progress=Progress(step=STARTING))
    text = await shown(asked(async_rf, {}))
    assert text.count(">Cancel</button>") == 3 and "starting Spark, " in text
    buttons = [f'name="run_id" value="{one.run_id}"' for one in (first, second, third)]
    places = [text.index(button) for button in buttons]
    assert places == sorted(places)
    assert text.count("for the runs before it, ") == 2
    # What is asked for already is not asked for again; another choice can be.
    assert "Run now" not in text
    assert "Run now" not in await shown(asked(async_rf, by_user))
    other = await shown(asked(async_rf, {"by": "vhost"}))
    assert "Run now" in other and 'action="/reports/traffic?by=vhost"' in other


async def test_a_run_shows_its_step_the_stage_the_tasks_the_rows_and_the_time(
    runs: Runs, async_rf: AsyncRequestFactory
) -> None:
    progress = Progress(
        step="computing", stage=2, stages=3, tasks_done=1, tasks=4, rows_read=12_345
    )
    began = int(time.time() * 1000) - 30_000
    run = begun(runs, 1, state="running", started_at=began, progress=progress)
    text = await shown(asked(async_rf, {}))
    words = r">computing, (\d+) s so far: stage 2 of 3, task 1 of 4, 12,345 rows read "
    found = re.search(words, text)
    assert found is not None and int(found[1]) >= 30, text
    # Through Spark Connect there is no count of rows while it runs.
    run.progress = Progress(step="computing", stage=2, stages=3)
    runs.write(run)
    assert "so far: stage 2 of 3 " in await shown(asked(async_rf, {}))


async def test_the_page_is_loaded_anew_when_a_run_that_it_shows_is_over_and_not_before(
    runs: Runs, async_rf: AsyncRequestFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = begun(runs, 1, state="running", started_at=NOW)
    two = begun(runs, 2, state="waiting", parameters={"by": "user"})
    seen = {"shown": f"{one.run_id},{two.run_id}"}

    async def refreshes(query: dict[str, str]) -> bool:
        answer = await views.status(asked(async_rf, query, htmx=True), REPORT)
        return answer.headers.get("HX-Refresh") == "true"

    assert not await refreshes(seen)
    assert seen["shown"].replace(",", "%2C") in await shown(asked(async_rf, seen, htmx=True))
    one.state, one.ended_at = "done", NOW + 9000
    runs.write(one)
    assert await refreshes(seen) and not await refreshes({"shown": two.run_id})
    two.state, two.ended_at = "cancelled", NOW + 9000
    runs.write(two)
    assert await refreshes({"shown": two.run_id}) and await refreshes({})
    # Nothing waits and Spark is being installed: a page that is loaded each second cannot be used.
    installing = Reply(next_at={REPORT: NOW}, is_installing=True)
    monkeypatch.setattr(client, "status", lambda _: installing)
    assert not await refreshes({})


async def test_the_list_of_runs_tells_of_deliveries_and_links_only_logs_that_there_are(
    runs: Runs, async_rf: AsyncRequestFactory
) -> None:
    undelivered = Delivery(kind="mail", at=NOW, attempts=3, error="OSError: no such host")
    ran = begun(
        runs, 1, state="failed", started_at=NOW, ended_at=NOW + 5000, error="no Java",
        asked_by=None, plans=["monday"],
        deliveries=[Delivery(kind="webhook", at=NOW, attempts=1), undelivered],
    )  # fmt: skip
    never = begun(runs, 2, state="cancelled", ended_at=NOW)
    text = await page(asked(async_rf, {}))
    assert f"{ran.run_id}.log" in text and f"{never.run_id}.log" not in text
    assert '<span class="quiet">plan</span> <bdi class="name" dir="auto">monday</bdi>' in text
    assert 'title="delivered">webhook</span>' in text
    assert 'title="OSError: no such host">mail failed</span>' in text


async def test_a_report_that_is_never_due_says_that_it_is_computed_when_asked_for(
    runs: Runs,
    async_rf: AsyncRequestFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "(schedule <code>5 * * * *</code>, UTC)" in await page(asked(async_rf, {}))
    monkeypatch.setattr(client, "status", lambda _: Reply(next_at={REPORT: 0}))
    text = await page(asked(async_rf, {}))
    assert "It is computed only when it is asked for." in text and "(schedule" not in text
    # The schedule asks the report's own question, not each one that a page can choose.
    monkeypatch.setattr(client, "status", lambda _: ANSWERS)
    assert "(schedule" not in await page(asked(async_rf, {"by": "user"}))


async def test_only_users_who_see_everything_read_how_much_the_whole_feed_has(
    runs: Runs, async_rf: AsyncRequestFactory
) -> None:
    write_results(runs.directory.parent)
    request = asked(async_rf, {})
    assert "with 123 k new lines of the usage feed" in await page(request)
    request.user.is_monitoring = request.user.is_administrator = False
    assert "new lines of the usage feed" not in await page(request)
