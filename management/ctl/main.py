"""Runs one command: reads the line, asks the broker, prints the answer, returns the status."""

from __future__ import annotations

import asyncio
import codecs
import getpass
import io
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from broker.settings import config as settings
from management import starting
from management.broker_client import BrokerClient, BrokerError, Push
from management.ctl import commands as commands
from management.ctl import helping, output, parsing
from management.ctl.table import (
    CONFIG,
    DATA,
    INTERRUPTED,
    NO_PERMISSION,
    NO_USER,
    PRINTED,
    SOFTWARE,
    TEMPORARY,
    UNAVAILABLE,
    Command,
    CommandError,
)

TIMEOUT_S = 60.0
_STATUSES = {
    "broker_away": UNAVAILABLE,
    "not_found": UNAVAILABLE,
    "internal_error": SOFTWARE,
    "not_implemented": SOFTWARE,
    "busy": TEMPORARY,
    "unavailable": TEMPORARY,
    "blocked": TEMPORARY,
    "too_many_attempts": TEMPORARY,
}
"""Exit status for the `error` words of the control socket; the others are 65."""
ESCAPED = "leveret_escaped"
"""What becomes of characters that a terminal's encoding lacks."""
_HELP = ("--help", "-h", "-?")


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Writes a character that an encoding lacks as JSON does, so that JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    shown = json.dumps(error.object[error.start : error.end])
    return shown[1:-1], error.end


codecs.register_error(ESCAPED, _escape)


def main(argv: Sequence[str]) -> int:
    """Runs the command line that follows `ctl`; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPED)
    try:
        name, words = parsing.split(argv)
        if name is None or any(word in _HELP for word in words):
            name, words = "help", [name] if name not in (None, "help") else []
        command = parsing.find(name)
        call = _Call(command, parsing.options(command, words))
        return _run(call)
    except parsing.UsageError as error:
        print(f"Error: {output.safe(str(error))}", file=sys.stderr)
        if error.command is not None:
            print(f"usage: {helping.PROGRAM} {error.command.usage}", file=sys.stderr)
        return error.status
    except CommandError as error:
        print(f"Error: {output.safe_lines(str(error).strip())}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough; the interpreter must not complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(call: _Call) -> int:
    form = output.FORMATS[call.options["format"]]
    quiet = call.options["quiet"] or call.options["silent"] or form != "text"
    if call.command.says and not quiet:
        print(output.safe(_said(call)), flush=True)
    answer = asyncio.run(call.answer())
    if answer is PRINTED:
        return 0
    headers = not (call.options["silent"] or call.options["no_table_headers"])
    if isinstance(answer, str) and form == "json":
        # Texts are for people, except where the text is what was asked for.
        answer = {"result": answer} if call.command.group != "help" else answer
    if isinstance(answer, str) and form != "json":
        if not quiet or not call.command.says:
            print(_text(call, answer))
        return 0
    text = output.render(answer, form, headers=headers)
    if text:
        print(text)
    sys.stdout.flush()
    return 0


def _text(call: _Call, answer: str) -> str:
    """Files and scripts go out as they are; the rest must not move the cursor."""
    if call.command.group in ("help", "definitions"):
        return answer
    return output.safe_lines(answer)


def _said(call: _Call) -> str:
    several = {one.key for one in call.command.parameters if one.many}
    shown = {
        key: " ".join(value) if key in several else output.cell(value)
        for key, value in call.options.items()
    }
    return call.command.says.format_map({**shown, "vhost": call.vhost})


class _Call:
    """One run of a command; see `table.Call`."""

    def __init__(self, command: Command, options: Mapping[str, Any]) -> None:
        self.command = command
        self.options = options
        self.vhost: str = options["vhost"] if options["vhost"] is not None else "/"
        timeout = options["timeout"]
        self.timeout: float | None = timeout
        self._timeout_s = TIMEOUT_S if timeout is None else min(timeout, 1e9)
        self._client: BrokerClient | None = None
        self._config: settings.Config | None = None

    async def answer(self) -> Any:
        """Carries the command out. Raises CommandError."""
        try:
            if self.command.run is not None:
                return await self.command.run(self)
            return await self._call_verb()
        finally:
            if self._client is not None:
                await self._client.close()

    async def _call_verb(self) -> None:
        arguments = dict(self.command.fixed)
        for parameter in self.command.parameters:
            value = self.options[parameter.key]
            if value is not None:
                arguments[parameter.to or parameter.key] = value
        if self.command.vhost:
            arguments["vhost"] = self.vhost
        await self.ask(self.command.verb, **arguments)

    async def ask(self, verb: str, **arguments: Any) -> Any:
        try:
            return await self._connected().call(verb, timeout_s=self._timeout_s, **arguments)
        except BrokerError as error:
            raise self._failed(verb, arguments, error) from None

    async def slices(self, verb: str, **arguments: Any) -> AsyncGenerator[dict[str, Any]]:
        slices = self._connected().sliced(verb, timeout_s=self._timeout_s, **arguments)
        async with aclosing(slices):
            try:
                async for answer in slices:
                    yield answer
            except BrokerError as error:
                raise self._failed(verb, arguments, error) from None

    async def rows(self, noun: str, **arguments: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with aclosing(self.slices("list", noun=noun, **arguments)) as slices:
            async for answer in slices:
                found += answer["items"]
        return found

    async def events(self) -> AsyncGenerator[Push]:
        pushes = self._connected().subscribe(topic="events")
        async with aclosing(pushes):
            try:
                async for push in pushes:
                    if push.event == "away":
                        raise CommandError("the broker went away", UNAVAILABLE)
                    yield push
            except BrokerError as error:
                raise self._failed("subscribe", {}, error) from None

    def _failed(self, verb: str, arguments: Mapping[str, Any], error: BrokerError) -> CommandError:
        if error.error == "broker_away" and "within" in error.reason:
            return CommandError(error.reason, TEMPORARY)
        if error.error == "broker_away":
            path = self._path()
            if path.exists() and not os.access(path, os.R_OK | os.W_OK):
                owner = path.stat().st_uid
                return CommandError(
                    f"{path} belongs to user id {owner}, and only that user may use it",
                    NO_PERMISSION,
                )
            return CommandError(f"no broker answers on {path}: {error.reason}", UNAVAILABLE)
        user = self.options.get("username")
        if user is not None and error.reason in ("Not Found", "vhost_or_user_not_found"):
            if verb.startswith(("user", "vhost_or")):
                return CommandError(f'User "{user}" does not exist', NO_USER)
            if error.reason == "vhost_or_user_not_found":
                return CommandError(
                    f'User "{user}" or virtual host "{self.vhost}" does not exist', NO_USER
                )
        if error.reason == "vhost_not_found":
            vhost = arguments.get("vhost", arguments.get("name", self.vhost))
            return CommandError(f"Virtual host '{vhost}' does not exist", DATA)
        reason = error.reason
        if reason in ("Not Found", "queue_not_found", "exchange_not_found"):
            reason = self._missing()
        return CommandError(reason, _STATUSES.get(error.error, DATA))

    def _missing(self) -> str:
        """Names the object that does not exist."""
        for parameter in self.command.parameters:
            if not parameter.is_option:
                what = parameter.help.removeprefix("Name of the ").rstrip(".")
                kind = what if parameter.name == "name" else parameter.name
                return f"{kind} '{self.options[parameter.key]}' does not exist"
        return "the object does not exist"

    def _connected(self) -> BrokerClient:
        if self._client is None:
            self._client = BrokerClient(self._path())
        return self._client

    def _path(self) -> Path:
        if self.options["socket"] is not None:
            return Path(self.options["socket"])
        return self.settings().control_socket

    def settings(self) -> settings.Config:
        if self._config is None:
            given = [
                f"--{name}={self.options[name.replace('-', '_')]}"
                for name in ("data-dir", "config")
                if self.options[name.replace("-", "_")] is not None
            ]
            try:
                self._config = settings.load(given, os.environ)
            except settings.ConfigError as error:
                raise CommandError(str(error), CONFIG) from None
        return self._config

    def read_secret(self, prompt: str) -> str:
        if sys.stdin.isatty():
            return getpass.getpass(prompt)
        secret = sys.stdin.readline().rstrip("\r\n")
        if not secret:
            raise CommandError("no password: standard input is empty", DATA)
        return secret

    def process(self) -> int:
        config = self.settings()
        pid = starting.noted(config).get("supervisor") or starting.lone_broker(config)
        if pid is None:
            raise CommandError(f"no broker runs on {config.data_dir}", UNAVAILABLE)
        return pid
