"""Settings: where they come from, which wins, and what is said about bad ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker.settings import config, quantities
from broker.settings.config import ConfigError, load
from tests.appliance import ROOT
from tests.tidy.sources import PACKAGES, files

NO_FILE = {"LEVERET_CONFIG": ""}


def ini(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "leveret.ini").write_text(text)
    return {"LEVERET_CONFIG": str(tmp_path / "leveret.ini")}


def test_it_has_the_documented_ports_by_default() -> None:
    loaded = load([], NO_FILE)
    assert (loaded.amqp_port, loaded.ws_port, loaded.http_port, loaded.metrics_port) == (
        5672,
        15670,
        15672,
        15692,
    )
    assert loaded.bind == ("127.0.0.1",)
    assert loaded.warnings == ()


def test_it_prefers_options_to_variables_to_the_file(tmp_path: Path) -> None:
    environ = ini(tmp_path, "[amqp]\namqp_port = 1\nheartbeat = 1\nchannel_max = 1\n")
    environ |= {"LEVERET_AMQP_PORT": "2", "LEVERET_HEARTBEAT": "2"}
    loaded = load(["--amqp-port", "3"], environ)
    assert (loaded.amqp_port, loaded.heartbeat, loaded.channel_max) == (3, 2, 1)


def test_it_takes_the_last_of_an_option_given_twice() -> None:
    assert load(["--amqp-port=0", "--amqp-port", "7"], NO_FILE).amqp_port == 7


def test_it_takes_the_file_from_the_option(tmp_path: Path) -> None:
    environ = ini(tmp_path, "[amqp]\namqp_port = 9\n")
    assert load(["--config", environ["LEVERET_CONFIG"]], NO_FILE).amqp_port == 9


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[login]\ndefault_password hunter2\n", "neither [section] nor name = value in line 2"),
        ("default_password hunter2\n", "line 1 stands before the first [section]"),
        ("[login]\na b\n\nhunter2\n", "neither [section] nor name = value in lines 2, 4"),
    ],
)
def test_it_tells_a_faulty_line_by_its_number_alone(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load([], ini(tmp_path, text))
    assert str(caught.value) == f"cannot read {tmp_path / 'leveret.ini'}: {told}"


def test_it_refuses_to_have_no_data_directory() -> None:
    with pytest.raises(ConfigError, match="LEVERET_DATA_DIR: '' is not a path"):
        load([], {**NO_FILE, "LEVERET_DATA_DIR": ""})


def test_it_refuses_a_home_directory_that_it_does_not_find() -> None:
    told = "--data-dir: '~nosuchuser/x' is not a path: the user behind ~ has no home directory"
    with pytest.raises(ConfigError, match=told):
        load(["--data-dir", "~nosuchuser/x"], NO_FILE)


def test_it_shows_no_secret_among_the_options_of_spark() -> None:
    text = "spark.hadoop.fs.s3a.secret.key=hunter2, spark.executor.memory=2g"
    (item,) = [one for one in config.settings() if one.name == "spark_options"]
    shown = "spark.hadoop.fs.s3a.secret.key=not shown, spark.executor.memory=2g"
    assert item.shown_text(text) == item.shown(item.read(text)) == shown
    assert item.public(item.read(text)) == tuple(shown.split(", "))
    with pytest.raises(ConfigError) as caught:
        load(["--spark-options", f"{text} memory"], NO_FILE)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("item", list(config.settings()), ids=lambda item: item.name)
def test_it_reads_back_every_default_it_shows(item: config.Setting) -> None:
    if item.default not in (None, ()):
        assert item.read(item.shown_default()) == item.default
    assert item.section in config.SECTIONS
    assert item.text
    assert not item.text.endswith(".")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("65536", 65536),
        ("64KiB", 65536),
        ("64 k", 65536),
        ("1_000", 1000),
        ("8 MiB", 8388608),
        ("1.5 GiB", 1610612736),
        ("2 kB", 2000),
        ("3 mb", 3000000),
    ],
)
def test_it_reads_sizes_with_units(text: str, value: int) -> None:
    assert quantities.read_size(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("10", 10), ("200 ms", 0.2), ("5min", 300), ("8 h", 28800), ("1.5 s", 1.5)]
)
def test_it_reads_times_with_units(text: str, value: float) -> None:
    assert quantities.read_time(text) == value


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--amqp-port=x", "--amqp-port: 'x' is not a port, 0 to 65535"),
        ("--amqp-port=65536", "'65536' is not a port"),
        ("--metrics-port=-2", "'-2' is not a port, -1 to 65535"),
        ("--segment-size=3 apples", "'3 apples' is not a size such as"),
        ("--segment-size=1", "'1' is not a size of 64 KiB to 1 GiB"),
        ("--segment-size=1.2.3", "is not a size such as"),
        ("--session-lifetime=soon", "is not a time such as"),
        ("--heartbeat=-1", "is not a whole number, 0 to 65535"),
        ("--heartbeat=६", "is not a whole number"),
        ("--no-sync=perhaps", "is not yes or no"),
        ("--bind=example.org", "is not an address such as"),
        ("--log-level=loud", "is not one of debug, info, warning, error"),
        ("--reports-schedule=daily", "is not a schedule of five fields"),
        ("--amqp-prt=1", "unknown option --amqp-prt; did you mean --amqp-port?"),
        ("--tls-key-file=/k", "tls_key_file needs tls_cert_file"),
        ("--default-user=ada", "default_user needs default_password"),
        ("--data-dir=/" + "d" * 100, "too long for a Unix socket"),
        ("--bind", "a value is missing"),
        ("--bind=,", "is not an address such as"),
        ("--bind=::1,example.org", "is not an address such as"),
        ("--tcp-keepalive=60:10", "is not 0, or seconds:seconds:count"),
        ("--tcp-keepalive=60:0:3", "is not 0, or seconds:seconds:count"),
        ("--tcp-backlog=0", "is not a whole number, 1 to 65535"),
        ("--connections-max=-1", "is not a whole number"),
        ("--proxy-protocol-sources=10.0.0.1/8", "is not a list of addresses or networks"),
        ("--proxy-protocol-sources=proxy.example", "is not a list of addresses or networks"),
        ("--amqps-port=-1", "'-1' is not a port"),
        ("--wss-port=-2", "'-2' is not a port, -1 to 65535"),
        ("--tls-verify=maybe", "is not one of none, optional, required"),
        ("--tls-verify=required", "tls_verify = required needs tls_ca_file"),
        ("--tls-min-version=1.1", "is not one of 1.2, 1.3"),
        ("--tls-login-from=nickname", "is not one of distinguished_name, common_name, subject_"),
        ("--tls-login-san=other", "is not one of dns, email, ip, uri"),
        ("--tls-handshake-timeout=0", "is not a time from 100 ms"),
        ("--tls-ciphers=a\x00b", "is not text without control characters"),
        ("--max-message-size=513MiB", "'513MiB' is not a size of 0 to 512 MiB"),
    ],
)
def test_it_says_what_is_wrong_with_a_value(option: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load([option], NO_FILE)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_keeps_a_bad_password_to_itself() -> None:
    with pytest.raises(ConfigError) as caught:
        load([], {**NO_FILE, "LEVERET_DEFAULT_PASSWORD": ""})
    assert "the value is not set" in str(caught.value)
    assert "hunter2" not in repr(load([], {**NO_FILE, "LEVERET_DEFAULT_PASSWORD": "hunter2"}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[ampq]\n", "unknown section [ampq]"),
        ("no section\n", "line 1 stands before the first [section]"),
        ("[amqp]\namqp_port = 1\namqp_port = 2\n", "already exists"),
        ("[amqp]\namqp_port = x\n", "leveret.ini: amqp_port: 'x' is not a port"),
    ],
)
def test_it_refuses_a_file_it_cannot_read(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load([], ini(tmp_path, text))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_refuses_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        load(["--config", str(tmp_path / "none.ini")], {})
    (tmp_path / "binary.ini").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(["--config", str(tmp_path / "binary.ini")], {})


def test_it_warns_of_unknown_names_and_goes_on(tmp_path: Path) -> None:
    environ = ini(tmp_path, "[amqp]\nheart_beat = 1\n[store]\namqp_port = 1\n")
    loaded = load([], {**environ, "LEVERET_HTTP_PROT": "1", "LEVERET_TEST_X": "1"})
    assert len(loaded.warnings) == 3
    assert "did you mean LEVERET_HTTP_PORT?" in loaded.warnings[0]
    assert "unknown key heart_beat in [amqp]; did you mean heartbeat?" in loaded.warnings[1]
    assert "amqp_port belongs into [amqp]" in loaded.warnings[2]


def test_it_takes_relative_paths_from_the_files_directory(tmp_path: Path) -> None:
    assert load([], ini(tmp_path, "[main]\ndata_dir = here\n")).data_dir == tmp_path / "here"
    assert load(["--data-dir", "there"], NO_FILE).data_dir == Path.cwd() / "there"


def test_it_reads_the_first_password_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pa ss\n")
    loaded = load(["--default-user=ada", f"--default-password-file={tmp_path / 'secret'}"], NO_FILE)
    assert (loaded.default_user, loaded.default_password) == ("ada", "pa ss")
    (tmp_path / "secret").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        load([f"--default-password-file={tmp_path / 'secret'}"], NO_FILE)


def test_it_keeps_percent_signs_in_the_file(tmp_path: Path) -> None:
    loaded = load([], ini(tmp_path, "[login]\ndefault_password = a%b%(c)s\n"))
    assert loaded.default_password == "a%b%(c)s"


@pytest.mark.parametrize("command", ["serve", "broker", "web", "reports", "bridges"])
def test_it_ends_with_one_line_and_78_for_a_bad_setting(command: str) -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), command, "--amqp-port", "many\nlines"],
        capture_output=True,
        text=True,
        env={**os.environ, **NO_FILE},
        timeout=30,
        check=False,
    )
    assert result.returncode == 78
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"leveret {command}: --amqp-port: ")


def test_it_explains_every_option_in_its_help() -> None:
    text = config.help_text("serve", "Start.")
    for item in config.settings():
        assert item.option in text


def test_it_imports_nothing_heavy_to_show_its_help() -> None:
    code = (
        "import sys; sys.argv = ['manage.py', 'broker', '--help']; import manage; manage.main();"
        "print([name for name in ('django', 'asyncio', 'msgspec', 're2') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_it_reads_every_setting_somewhere() -> None:
    """A setting that nothing reads promises what nobody keeps."""
    code = "\n".join(
        path.read_text()
        for path in files(".py", ".pyx", under=PACKAGES)
        if path.name != "config.py"
    )
    settled_while_loading = {"default_password_file"}
    unread = [
        item.name
        for item in config.settings()
        if not re.search(rf"\.{item.name}\b|\"{item.name}\"", code)
        and item.name not in settled_while_loading
    ]
    assert not unread
