"""Imports of definitions: checked whole, then carried out in slices, all or nothing.

What is about to be done is in `definitions_import.json` while it is being done. A start that finds
the file carries the import out to its end, so that a crash in the middle leaves no half of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from broker.access import passwords
from broker.access.sealing import SecretsKey
from broker.definitions.applying import Failed, carry_out
from broker.definitions.document import OF_THE_NODE, ORDER, Fault, give_up, parse
from broker.definitions.plan import Plan
from broker.server.pace import Pace, paced
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.definitions")

PENDING = "definitions_import.json"
_MODE = 0o600
_SEALED = ("parameters", "global_parameters")
"""Sections whose values may have secrets."""

T = TypeVar("T")


async def prepared(broker: Broker, count: int) -> list[int]:
    """Incarnation ids of `count` new vhosts, with their directories on disk. Raises OSError."""
    if not count:
        return []
    owned = [directory for feature in broker.features for directory in feature.directories]
    found: list[int] = await asyncio.to_thread(broker.definitions.prepare, count, owned)
    return found


class Importing:
    """The imports of one broker, one at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._one = asyncio.Lock()

    async def run(
        self,
        definitions: bytes | memoryview | Mapping[str, Any],
        only: str | None = None,
        *,
        dry: bool = False,
        owner: str = "",
    ) -> Plan:
        """Imports a document, or with `dry` only finds out what that would do. `owner` is the user
        who asks, "" the appliance. Raises Fault if the document is wrong, Failed if something came
        in between; nothing is changed then."""
        members: Mapping[str, Any]
        if isinstance(definitions, bytes | memoryview):
            members = await paced(parse(definitions))
        else:
            members = definitions
        if dry:
            plan = Plan(self._broker, only, dry=True)
            try:
                await paced(plan.read(members))
            finally:
                await paced(plan.let_go())
                await paced(give_up(members.values()))
            return plan
        # It continues if the client that asked goes away; its fault is then told to no one.
        task = asyncio.ensure_future(self._run_and_give_up(members, only, owner))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(task)
        finally:
            # The traceback of its fault refers to this frame: both would be garbage in a circle.
            del task

    async def _run_and_give_up(
        self, members: Mapping[str, Any], only: str | None, owner: str
    ) -> Plan:
        try:
            return await self._run([members], only, owner=owner)
        finally:
            await paced(give_up(members.values()))

    async def load(self, documents: list[tuple[str, Mapping[str, Any]]]) -> Plan:
        """Imports several documents, each with the name of its file, as one."""
        return await self._run([members for _, members in documents], None, documents)

    async def resume(self) -> None:
        """Carries out what a crash interrupted."""
        path = self._path()
        if not disk.exists(path):
            return
        try:
            kept = json.loads(disk.read(path))
            if not isinstance(kept["definitions"], dict):
                raise ValueError("it holds no definitions")
            self._unseal(kept["definitions"])
            owner = kept.get("owner", "")
            plan = await self._run([kept["definitions"]], kept["vhost"], owner=owner)
            self._forget()
        except (Fault, Failed, ValueError, KeyError, TypeError) as error:
            log.error(
                "the import of definitions that a crash interrupted cannot be ended: %s", error
            )
            self._broker.problems.append(
                f"an import of definitions was interrupted and cannot be ended ({error}); it is "
                f"kept in {PENDING}.failed"
            )
            disk.rename(path, f"{path}.failed")
            disk.sync_directory(str(self._broker.config.data_dir))
            return
        log.warning(
            "an import of definitions that a crash interrupted was completed: %d changes",
            plan.made,
        )

    async def _run(
        self,
        documents: list[Mapping[str, Any]],
        only: str | None,
        named: list[tuple[str, Mapping[str, Any]]] | None = None,
        owner: str = "",
    ) -> Plan:
        async with self._one:
            plan = Plan(self._broker, only, owner=owner)
            try:
                await self._carry_out(plan, documents, only, named)
            finally:
                await paced(plan.let_go())
            return plan

    async def _carry_out(
        self,
        plan: Plan,
        documents: list[Mapping[str, Any]],
        only: str | None,
        named: list[tuple[str, Mapping[str, Any]]] | None,
    ) -> None:
        for number, definitions in enumerate(documents):
            try:
                await paced(plan.read(definitions))
            except Fault as error:
                if named is not None:
                    raise Fault(f"{named[number][0]}: {error}") from None
                raise
        if not plan.steps:
            return
        await self._hash(plan)
        await self._note(documents, only, plan)
        try:
            try:
                plan.tenants.prepared = await prepared(self._broker, plan.tenants.new)
            except OSError as error:
                raise Failed(f"the directory of a vhost cannot be made: {error}") from error
            await paced(carry_out(plan))
            for vhost in plan.swept:
                self._broker.policy_sweep.begin(vhost)
            await self._broker.policy_sweep.over(plan.swept)
            await self._broker.synced()
        except asyncio.CancelledError:
            # The broker stops: its next start carries the rest out.
            raise
        except BaseException:
            # It is taken back; the next start must not make it again.
            # What was declared meanwhile has its policies.
            for vhost in plan.swept:
                self._broker.policy_sweep.begin(vhost)
            with contextlib.suppress(OSError):
                await self._broker.synced()
            await asyncio.to_thread(self._forget)
            raise
        await asyncio.to_thread(self._forget)
        log.info("definitions import: %d changes", plan.made)

    async def _hash(self, plan: Plan) -> None:
        """Hashes passwords in the clear; one that the user has already keeps its hash."""
        logins = self._broker.logins
        for password in plan.passwords:
            user = self._broker.access.users.get(password.user)
            if user is not None and await logins.fits(password.text, user):
                password.password_hash = user.password_hash
                password.hashing_algorithm = user.hashing_algorithm
            else:
                password.password_hash = await logins.hash(password.text)
                password.hashing_algorithm = passwords.ARGON2ID

    async def _note(self, documents: list[Mapping[str, Any]], only: str | None, plan: Plan) -> None:
        """Writes what is about to be done, with hashes in place of passwords and the secrets of
        parameters encrypted."""
        hashes = {password.user: password for password in plan.passwords}
        pace = Pace()
        by = f'"vhost": {json.dumps(only)}, "owner": {json.dumps(plan.owner)}'
        pieces = [f'{{{by}, "definitions": {{']
        for section in ORDER:
            if only is not None and section in OF_THE_NODE:
                continue
            rows: list[str] = []
            for definitions in documents:
                for row in definitions.get(section) or ():
                    if section == "users" and row.get("password"):
                        row = {name: row[name] for name in row if name != "password"}
                        password = hashes[row["name"]]
                        row["password_hash"] = password.password_hash
                        row["hashing_algorithm"] = password.hashing_algorithm
                    if section in _SEALED:
                        shown, sealed = self._key.seal(PENDING, row.get("value"))
                        row = {**row, "value": shown, "sealed": sealed} if sealed else row
                    rows += (", " if rows else "", json.dumps(row))
                    await pace()
            if rows:
                pieces += (", " if len(pieces) > 1 else "", f'"{section}": [', *rows, "]")
        path = self._path()
        pieces.append("}}\n")

        def write() -> None:
            disk.write_atomic(path, "".join(pieces).encode(), _MODE)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise Failed(f"{PENDING} cannot be written: {error.strerror}") from error

    def _unseal(self, definitions: dict[str, Any]) -> None:
        """Decrypts what `_note` has encrypted. Raises ValueError."""
        for section in _SEALED:
            for row in definitions.get(section) or ():
                if "sealed" in row:
                    row["value"] = self._key.unseal(PENDING, row["value"], row.pop("sealed"))

    @property
    def _key(self) -> SecretsKey:
        return self._broker.access.parameters.key

    def _forget(self) -> None:
        if disk.exists(self._path()):
            disk.unlink(self._path())
            disk.sync_directory(str(self._broker.config.data_dir))

    def _path(self) -> str:
        return f"{self._broker.config.data_dir}/{PENDING}"
