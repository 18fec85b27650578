"""What commands must not show, and what a terminal cannot show."""

from __future__ import annotations

import io
import json

import pytest

from management.ctl import processes
from management.ctl.main import ESCAPED, main
from tests.conftest import Make
from tests.ctl.conftest import Ctl

SECRET = "hunter2-secret"
SPARK = f"spark.hadoop.fs.s3a.secret.key={SECRET} spark.executor.memory=2g"


@pytest.mark.parametrize("by", ["variable", "option"])
def test_no_command_shows_a_password_of_the_settings(make_broker: Make, run: Ctl, by: str) -> None:
    smtp = f"smtps://mailer:{SECRET}@mail.example:465"
    broker = make_broker(start=False)
    if by == "variable":
        broker.environment = {"LEVERET_SMTP_URL": smtp, "LEVERET_SPARK_OPTIONS": SPARK}
    else:
        broker.settings |= {"smtp_url": smtp, "spark_options": SPARK}
    broker.start()
    for command in ("environment", "report", "os_env", "command_line_arguments"):
        ran = run("--data-dir", str(broker.data_dir), command)
        assert ran.status == 0
        assert SECRET not in ran.out, command


def test_a_character_that_the_terminal_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii"))
    monkeypatch.setattr("sys.stderr", stderr := io.TextIOWrapper(err, encoding="ascii"))
    assert main(["日本"]) != 0
    stderr.flush()
    assert b"\\u65e5\\u672c" in err.getvalue()


def test_json_stays_json_where_the_terminal_lacks_a_character() -> None:
    name = "é日\N{SLIGHTLY SMILING FACE}"
    printed = json.dumps(name, ensure_ascii=False).encode("ascii", ESCAPED)
    assert json.loads(printed) == name


def test_stop_waits_as_long_as_all_parts_may_take() -> None:
    assert processes.stop_patience(None, 20.0) == 110.0
    assert processes.stop_patience(7.0, 20.0) == 7.0
