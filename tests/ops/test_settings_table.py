"""The table of settings, row by row: the file, a variable and an option say the same; what cannot
be read is told by name; SIGHUP changes what it says it changes."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.settings import config
from broker.settings.bounds import FIXED
from broker.settings.config import ConfigError, load
from broker.settings.sources import Setting
from tests.appliance import ROOT, Appliance
from tests.conftest import Make
from tests.listeners.certificates import Authority
from tests.listeners.test_tls import until

ROWS = list(config.settings())


class Texts(NamedTuple):
    """What a person may write for a setting of a kind, and what no such setting is."""

    good: str
    bad: str


KINDS = {
    "addresses": Texts("::1, 127.0.0.1", "nowhere"),
    "count": Texts("1_234", "a few"),
    "index": Texts("leveldb", "sqlite"),
    "keepalive": Texts("61:11:4", "61:11"),
    "level": Texts("warning", "loud"),
    "list": Texts("one.example two.example", ""),
    "log format": Texts("json", "xml"),
    "memory": Texts("0.5", "1.5"),
    "name": Texts("some name", ""),
    "named paths": Texts("a=/a.pem, b=/b.pem", "a=relative"),
    "networks": Texts("10.0.0.0/8, ::1", "10.0.0.1/8"),
    "object store": Texts("s3://bucket/prefix", "gopher://x"),
    "optional port": Texts("-1", "-2"),
    "path": Texts("/somewhere", ""),
    "percent": Texts("35 %", "101 %"),
    "port": Texts("12345", "70000"),
    "schedule": Texts("7 3 * * 1", "now and then"),
    "secret": Texts("hush", ""),
    "size": Texts("1 MiB", "1 foot"),
    "spark options": Texts("spark.a=1, spark.b=2", "memory=2g"),
    "sync method": Texts("syncfs", "fsync"),
    "text": Texts("HIGH", ""),
    "time": Texts("5 min", "later"),
    "tls login": Texts("common_name", "nickname"),
    "tls san": Texts("email", "fax"),
    "tls verify": Texts("optional", "perhaps"),
    "tls version": Texts("1.3", "1.1"),
    "yes or no": Texts("yes", "perhaps"),
}
# Every text is a value of these kinds, and an empty one is none.
TAKE_ANYTHING = {"list", "path", "text"}
# Rows whose bounds leave out what fits their kind.
GOOD = {
    "body_in_memory": "2 MiB",
    "bridges_nice": "7",
    "body_write_buffer": "2 MiB",
    "http_unfinished_max": "80 MiB",
    "login_refusal_delay": "1 s",
    "message_store_index_open_files": "100",
    "reports_nice": "7",
    "segment_size": "4 MiB",
    "tail_memory": "2 MiB",
    "spark_driver_memory": "1 GiB",
    "stream_searches_max": "7",
    "transfers_at_once": "7",
    "tier_cache_max": "32 MiB",
    "tier_reads_at_once": "7",
    "tier_uploads_at_once": "7",
    "tiers_nice": "7",
    "unanswered_max": "700",
    "unsent_max": "3 MiB",
    "usage_hourly_keep": "100 d",
    "usage_keep": "100 d",
    "web_nice": "7",
    "web_turn": "2 ms",
}
# Rows that take what is bad for others of their kind.
BAD = {"smtp_url": "a\x07"}
WITH = {
    "tls_key_file": ["--tls-cert-file=/certificate"],
    "tls_verify": ["--tls-ca-file=/authorities"],
    "default_user": ["--default-password=hush"],
}


def good(item: Setting) -> str:
    return GOOD.get(item.name, KINDS[item.kind].good)


@pytest.mark.parametrize("item", ROWS, ids=lambda item: item.name)
def test_a_value_is_the_same_wherever_it_is_written(item: Setting, tmp_path: Path) -> None:
    text = good(item)
    if item.name == "default_password_file":
        (tmp_path / "password").write_text("from a file\n")
        text = str(tmp_path / "password")
    file = tmp_path / "leveret.ini"
    file.write_text(f"[{item.section}]\n{item.name} = {text}\n")
    more, nothing = WITH.get(item.name, []), {"LEVERET_CONFIG": ""}
    ways = {
        "file": load(more, {"LEVERET_CONFIG": str(file)}),
        "variable": load(more, {**nothing, item.variable: text}),
        "option": load([*more, f"{item.option}={text}"], nothing),
        "option and word": load([*more, item.option, *([] if item.is_flag else [text])], nothing),
    }
    name = "default_password" if item.name == "default_password_file" else item.name
    default = getattr(load(more, nothing), name)
    values = {way: getattr(loaded, name) for way, loaded in ways.items()}
    assert len(set(values.values())) == 1, values
    assert values["file"] != default, "this test writes something else than the default"
    for loaded in ways.values():
        assert loaded.warnings == ()


@pytest.mark.parametrize(
    "item", [item for item in ROWS if item.kind not in TAKE_ANYTHING], ids=lambda item: item.name
)
def test_a_bad_value_is_told_with_its_place(item: Setting, tmp_path: Path) -> None:
    bad = BAD.get(item.name, KINDS[item.kind].bad)
    file = tmp_path / "leveret.ini"
    file.write_text(f"[{item.section}]\n{item.name} = {bad}\n")
    shown = "the value" if item.secret else repr(bad)
    for argv, environ, place in (
        ([], {"LEVERET_CONFIG": str(file)}, f"{file}: {item.name}"),
        ([], {"LEVERET_CONFIG": "", item.variable: bad}, item.variable),
        ([f"{item.option}={bad}"], {"LEVERET_CONFIG": ""}, item.option),
    ):
        with pytest.raises(ConfigError) as caught:
            load(argv, environ)
        assert re.fullmatch(rf"{re.escape(f'{place}: {shown} is not ')}.+", str(caught.value))


@pytest.mark.parametrize("item", ROWS, ids=lambda item: item.name)
def test_a_child_gets_the_value_that_its_supervisor_has(item: Setting, tmp_path: Path) -> None:
    text = good(item)
    if item.name == "default_password_file":
        (tmp_path / "password").write_text("from a file\n")
        text = str(tmp_path / "password")
    more, nothing = WITH.get(item.name, []), {"LEVERET_CONFIG": ""}
    loaded = load([*more, f"{item.option}={text}"], nothing)
    got = config.as_in_force(config.in_force(loaded, {}), ["--amqp-port=1"])
    assert got == loaded
    assert got.argv == ("--amqp-port=1",)


def test_help_and_document_have_every_row() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    told = config.help_text("serve", "Start.")
    for item in ROWS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{item.name}` |"))
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert cells[3].strip() == ("yes" if item.reload else "")
        entry = told[told.index(f"  {item.option}") :].partition("\n  --")[0]
        assert ("[SIGHUP]" in entry) is item.reload, entry


def test_the_documents_name_what_cannot_be_set() -> None:
    settings_page = (ROOT / "docs/configuration.md").read_text()
    compatibility = (ROOT / "docs/compatibility.md").read_text()
    for row in FIXED:
        assert f"| {row.value:,} | {row.what} | {row.why} |" in settings_page
        assert re.search(rf"\b{row.value:,}\b", compatibility), row


# SIGHUP.


def write(file: Path, values: dict[str, str]) -> None:
    """An INI file with these settings."""
    sections: dict[str, list[str]] = {}
    for item in ROWS:
        if item.name in values:
            sections.setdefault(item.section, []).append(f"{item.name} = {values[item.name]}")
    file.write_text("".join(f"[{name}]\n" + "\n".join(s) + "\n" for name, s in sections.items()))


@pytest.fixture
def broker(make_broker: Make, tmp_path: Path) -> Appliance:
    """A broker with a certificate that has read an INI file, and no options but free ports."""
    authority = Authority(tmp_path / "first")
    write(
        tmp_path / "leveret.ini",
        {"tls_cert_file": str(authority.issue("server")), "tls_ca_file": str(authority.file)},
    )
    return make_broker(config=tmp_path / "leveret.ini", amqps_port=0)


def test_each_row_reloads_or_says_that_it_waits(broker: Appliance, tmp_path: Path) -> None:
    other = Authority(tmp_path / "second")
    certificate = str(other.issue("server"))
    values = {item.name: good(item) for item in ROWS if item.name not in broker.settings}
    values |= {
        "tls_cert_file": certificate,
        "tls_key_file": certificate,
        "tls_ca_file": str(other.file),
        "tls_names_dir": str(tmp_path / "second" / "names"),
        "log_level": "debug",
    }
    (tmp_path / "second" / "names").mkdir()
    # Lines of JSON are another test's; two places for one password do not go together.
    del values["log_format"], values["default_password_file"]
    write(tmp_path / "leveret.ini", values)
    broker.signal(signal.SIGHUP)
    until("takes effect after a restart", broker)
    until("settings: log_level is debug now, was info", broker)
    log = broker.log()
    at_once = set(re.findall(r"settings: (\w+) is .* now, was ", log))
    waiting = next(
        line.partition("settings: ")[2].partition(" changed;")[0].split(", ")
        for line in log.splitlines()
        if "takes effect after a restart" in line
    )
    assert at_once == {item.name for item in ROWS if item.reload and item.name in values}
    assert set(waiting) == {item.name for item in ROWS if not item.reload and item.name in values}
    assert "hush" not in log, "a secret in the log"
