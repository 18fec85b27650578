"""What the tiers process does with the object store, one task at a time and thread.

Objects are created, never replaced; what was put is read back and compared before the answer says
so. Before it changes anything in the store it looks whose the prefix is.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from broker.kernel.checksum import crc32c
from broker.schema.tier_work import BLOCK, OWNER, Answer, Fault, Task
from broker.store.files.record_scan import Scan

OWNER_LOOK_S = 5.0
"""So long what was read of the owner counts for uploads; deletions read it anew."""

RETRIES = 2
UPLOAD_SLOWEST = 1 << 20
"""Bytes a second: an upload that is slower is given up, and tried again."""

TEXT_MOST = 1000
"""Characters of an error: what S3 says stands behind two addresses."""

SEGMENT_MOST = 256 << 20
RECORDS_AT_ONCE, BYTES_AT_ONCE = 8192, 8 << 20


class Failed(Exception):
    """Why a task failed."""

    def __init__(self, fault: Fault, problem: str) -> None:
        super().__init__(problem)
        self.fault = fault


class ObjectStore:
    """The objects below `url`, `s3://bucket/prefix` or `file:///directory`. Through obstore."""

    def __init__(self, url: str, endpoint: str, region: str, timeout: float) -> None:
        """Raises Failed."""
        self.url = url
        self.requests = 0
        scheme, _, rest = url.partition("://")
        self._directory = Path(rest) if scheme == "file" else None
        try:
            if self._directory is not None:
                from obstore.store import LocalStore

                self._reading = self._writing = LocalStore(self._directory, mkdir=True)
            else:
                longest = timeout + SEGMENT_MOST / UPLOAD_SLOWEST
                self._reading = _s3(rest, endpoint, region, timeout)
                self._writing = _s3(rest, endpoint, region, longest)
        except Exception as error:
            raise Failed("store", f"{url} cannot be used: {_first_line(error)}") from None

    def get(self, name: str) -> tuple[bytes, str] | None:
        """An object and its ETag, None if there is none. Raises Failed."""
        return self._get(name, None)

    def get_part(self, name: str, offset: int, length: int) -> tuple[bytes, str] | None:
        """A part of an object."""
        return self._get(name, (offset, offset + length))

    def _get(self, name: str, part: tuple[int, int] | None) -> tuple[bytes, str] | None:
        import obstore

        def get() -> tuple[bytes, str]:
            found = obstore.get(self._reading, name, options={"range": part} if part else None)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

        return self._tried(name, get, missing=None)

    def read_through(self, name: str, take: Callable[[memoryview], None]) -> str:
        """Gives an object's content to `take` in parts; returns its ETag. Raises Failed."""
        import obstore

        def read() -> str:
            found = obstore.get(self._writing, name)
            for chunk in found.stream(min_chunk_size=BLOCK):
                take(memoryview(chunk))
            return found.meta["e_tag"] or ""

        etag: str | None = self._tried(name, read, missing=None)
        if etag is None:
            raise Failed("wrong", f"{self.url}/{name} is not there although it was just put")
        return etag

    def create(self, name: str, content: Any) -> bool:
        """Makes an object; False if there is one of this name. Raises Failed."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        def put() -> bool:
            try:
                obstore.put(self._writing, name, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        made: bool = self._tried(name, put)
        self._make_durable(name)
        return made

    def replace(self, name: str, content: bytes) -> None:
        """Makes an object or replaces it. Raises Failed."""
        import obstore

        self._tried(
            name,
            lambda: obstore.put(
                self._writing, name, content, mode="overwrite", use_multipart=False
            ),
        )
        self._make_durable(name)

    def delete(self, name: str) -> None:
        """Removes an object, if it is there. Raises Failed."""
        import obstore

        self._tried(name, lambda: obstore.delete(self._reading, name), missing=None)

    def _make_durable(self, name: str) -> None:
        """A directory's files are on its disk only when they and what leads to them are synced."""
        if self._directory is None:
            return
        path = self._directory / name
        try:
            _sync(path)
            for parent in path.parents:
                _sync(parent)
                if parent == self._directory.parent:
                    break
        except OSError as error:
            raise Failed("store", f"{path} cannot be synced: {error.strerror}") from None

    def _tried(self, name: str, act: Callable[[], Any], **missing: Any) -> Any:
        self.requests += 1
        try:
            return act()
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error) and "missing" in missing:
                return missing["missing"]
            raise Failed("store", f"{self.url}/{name}: {_first_line(error)}") from None
        except Failed:
            raise
        except Exception as error:
            raise Failed("store", f"{self.url}/{name}: {_first_line(error)}") from None


def _s3(rest: str, endpoint: str, region: str, timeout: float) -> Any:
    from obstore.store import S3Store

    bucket, _, prefix = rest.partition("/")
    settings = {"endpoint": endpoint, "region": region, "prefix": prefix}
    chosen: dict[str, Any] = {name: text for name, text in settings.items() if text}
    limit = timedelta(seconds=timeout)
    return S3Store(
        bucket,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "timeout": limit,
            "connect_timeout": min(limit, timedelta(seconds=10)),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": limit},
        **chosen,
    )


class Work:
    """Carries out tasks; for several threads."""

    def __init__(self, url: str, endpoint: str = "", region: str = "", timeout: float = 30) -> None:
        self._place = url, endpoint, region, timeout
        self._store: ObjectStore | None = None
        self._opening = threading.Lock()
        self._owner: tuple[str, float] = "", 0.0

    def carry_out(self, task: Task) -> Answer:
        """Does a task. Never raises: the answer says what was wrong."""
        answer = Answer(task.id)
        try:
            store = self._opened()
            _KINDS[task.kind](self, store, task, answer)
        except Failed as failed:
            answer.fault, answer.problem = failed.fault, str(failed)
        except Exception as error:
            answer.fault, answer.problem = "store", f"{type(error).__name__}: {_first_line(error)}"
        return answer

    def _opened(self) -> ObjectStore:
        with self._opening:
            if self._store is None:
                self._store = ObjectStore(*self._place)
            return self._store

    # -- whose it is -------------------------------------------------------------------------------

    def _read_owner(self, store: ObjectStore, answer: Answer) -> str:
        found = store.get(OWNER)
        answer.requests += 1
        owner = ""
        if found is not None:
            with contextlib.suppress(ValueError, AttributeError):
                owner = str(json.loads(found[0]).get("appliance", ""))
            if not owner:
                raise Failed("owner", f"{store.url}/{OWNER} is no owner's note: look at it")
        self._owner = owner, time.monotonic()
        return owner

    def _open(self, store: ObjectStore, task: Task, answer: Answer) -> None:
        owner = self._read_owner(store, answer)
        if not owner and task.known:
            raise Failed(
                "owner",
                f"{store.url} has no object '{OWNER}' although this appliance has used it: is it "
                "the right place, and mounted? Nothing is put there or deleted; if it is right, "
                "use ctl adopt_tiers",
            )
        if not owner:
            store.create(OWNER, _note(task))
            answer.requests += 1
            owner = self._read_owner(store, answer)
        answer.owner = owner
        if owner != task.appliance:
            raise Failed("owner", _foreign(store, owner))

    def _adopt(self, store: ObjectStore, task: Task, answer: Answer) -> None:
        store.replace(OWNER, _note(task))
        answer.requests += 1
        answer.owner = self._read_owner(store, answer)

    def _check_owner(self, store: ObjectStore, task: Task, answer: Answer, age: float) -> None:
        owner, at = self._owner
        if owner != task.appliance or time.monotonic() - at > age:
            owner = self._read_owner(store, answer)
        if owner != task.appliance:
            answer.owner = owner
            raise Failed("owner", _foreign(store, owner))

    # -- objects -----------------------------------------------------------------------------------

    def _put_segment(self, store: ObjectStore, task: Task, answer: Answer) -> None:
        self._put(store, task, answer, _segment(task))

    def _put_file(self, store: ObjectStore, task: Task, answer: Answer) -> None:
        self._put(store, task, answer, _content(task))

    def _put(self, store: ObjectStore, task: Task, answer: Answer, data: bytes) -> None:
        """Makes an object and reads it back."""
        view = memoryview(data)
        checks = [crc32c(view[start : start + BLOCK]) for start in range(0, len(data), BLOCK)]
        answer.checks = b"".join(check.to_bytes(4, "little") for check in checks)
        answer.check = crc32c(data)
        self._check_owner(store, task, answer, OWNER_LOOK_S)
        store.create(task.name, data)
        answer.requests += 1
        answer.sent += task.length
        read, check = 0, 0

        def take(part: memoryview) -> None:
            nonlocal read, check
            read += len(part)
            check = crc32c(part, check)

        answer.etag = store.read_through(task.name, take)
        answer.requests += 1
        answer.received += read
        if (read, check) != (task.length, answer.check):
            raise Failed(
                "wrong", f"{store.url}/{task.name} does not read as it was put: {read} bytes"
            )

    def _fetch(self, store: ObjectStore, task: Task, answer: Answer) -> None:
        found = store.get_part(task.name, task.offset, task.length)
        answer.requests += 1
        if found is None:
            raise Failed("missing", f"{store.url}/{task.name} is not there")
        data, etag = found
        answer.received += len(data)
        if len(data) != task.length or crc32c(data) != task.check:
            also = "" if etag == task.etag else f"; its ETag is {etag}, not {task.etag}"
            raise Failed(
                "wrong",
                f"{store.url}/{task.name} is not what was put there: the {task.length} bytes from "
                f"{task.offset} on have another checksum{also}",
            )
        try:
            descriptor = os.open(task.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.pwrite(descriptor, view, task.offset + len(data) - len(view)) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Failed("local", f"{task.path} cannot be written: {error.strerror}") from None

    def _read(self, store: ObjectStore, task: Task, answer: Answer) -> None:
        found = store.get_part(task.name, task.offset, task.length)
        answer.requests += 1
        if found is None:
            raise Failed("missing", f"{store.url}/{task.name} is not there")
        answer.data, etag = found
        answer.received += len(answer.data)
        if etag != task.etag or len(answer.data) != task.length:
            answer.data = b""
            raise Failed(
                "wrong",
                f"{store.url}/{task.name} is not what was put there: its ETag is {etag}, not "
                f"{task.etag}",
            )

    def _delete(self, store: ObjectStore, task: Task, answer: Answer) -> None:
        self._check_owner(store, task, answer, 0.0)
        store.delete(task.name)
        answer.requests += 1


_KINDS: dict[str, Callable[[Work, ObjectStore, Task, Answer], None]] = {
    "open": Work._open,
    "adopt": Work._adopt,
    "put": Work._put_segment,
    "put_file": Work._put_file,
    "get": Work._fetch,
    "read": Work._read,
    "delete": Work._delete,
}


def _content(task: Task) -> bytes:
    """A file. Raises Failed."""
    try:
        with Path(task.path).open("rb") as file:
            data = file.read(task.length)
    except FileNotFoundError:
        raise Failed("local", f"{task.path} is not there any more") from None
    except OSError as error:
        raise Failed("local", f"{task.path} cannot be read: {error.strerror}") from None
    if len(data) != task.length:
        raise Failed("local", f"{task.path} has {len(data)} bytes instead of {task.length}")
    return data


def _segment(task: Task) -> bytes:
    """The segment in a file, whose records are all sound. Raises Failed."""
    data = _content(task)
    try:
        scan = Scan(data, b"", task.incarnation, task.segment, True)
    except ValueError as error:
        raise Failed("local", f"{task.path} is no segment: {error}") from None
    while scan.next(RECORDS_AT_ONCE, BYTES_AT_ONCE) is not None:
        pass
    if scan.damaged or scan.position != task.length:
        raise Failed(
            "local", f"{task.path} is damaged at position {scan.position} of {task.length}"
        )
    return data


def _note(task: Task) -> bytes:
    return json.dumps({"appliance": task.appliance, "product": "Leveret"}).encode() + b"\n"


def _foreign(store: ObjectStore, owner: str) -> str:
    return (
        f"{store.url} belongs to appliance {owner or '(none)'}: it is read here, and nothing is "
        "put there or deleted, until ctl adopt_tiers"
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:TEXT_MOST]
