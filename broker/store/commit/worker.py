"""A thread for store work in Python that must not hold the loop: questions to an index on disk,
collecting body files, reading through records whose queue was deleted.

Calls are carried out one after the other; their results come back on the loop, through an eventfd.
A call may be a generator: each value it yields is a result.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

Done = Callable[[Any, BaseException | None], None]

# Results taken on the loop before it gets its turn back.
SLICE_S = 0.0005
# Results of a generator that may wait for the loop.
AHEAD = 64


class Worker:
    """Starts its thread with the first call. `on_done` belongs to the eventfd."""

    def __init__(self, name: str) -> None:
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.begun = 0
        """Calls since the start whose results were handed over."""
        self.open = 0
        """Of those, how many have not ended."""
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._results: collections.deque[tuple[Done, Any, BaseException | None, bool]] = (
            collections.deque()
        )
        self._room = threading.Semaphore(AHEAD)
        self._told = threading.Event()
        self._thread: threading.Thread | None = None

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self.event_fd >= 0:
            os.close(self.event_fd)
            self.event_fd = -1

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Carries out `call()` in the thread, then `done(result, error)` on the loop. The end of a
        generator is a result of None."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self.begun += 1
        self.open += 1
        self._calls.put((call, done))

    def ask(self, call: Callable[[], Any]) -> Any:
        """Carries out `call()` in the thread for another thread, which waits for it."""
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def carry_out() -> None:
            try:
                answer.put((call(), None))
            except Exception as error:
                answer.put((None, error))

        if self._thread is None:
            return call()
        self._calls.put((carry_out, _no_caller))
        result, error = answer.get()
        if error is not None:
            raise error
        return result

    def _run(self) -> None:
        while (entry := self._calls.get()) is not None:
            call, done = entry
            result, error = None, None
            try:
                result = call()
                if isinstance(result, Iterator):
                    for each in result:
                        self._room.acquire()
                        self._tell(done, each, None, last=False)
                    result = None
            except Exception as raised:
                error = raised
            if done is not _no_caller:
                self._tell(done, result, error, last=True)

    def _tell(self, done: Done, result: Any, error: BaseException | None, *, last: bool) -> None:
        self._results.append((done, result, error, last))
        self._told.set()
        os.eventfd_write(self.event_fd, 1)

    def on_done(self) -> None:
        """The eventfd is readable."""
        if self.event_fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.event_fd)
        end = time.monotonic() + SLICE_S
        while self._results:
            done, result, error, last = self._results.popleft()
            if last:
                self.open -= 1
            else:
                self._room.release()
            done(result, error)
            if time.monotonic() > end and self._results and self.event_fd >= 0:
                os.eventfd_write(self.event_fd, 1)
                return

    def drain(self) -> None:
        """Waits until everything is carried out and told. For the end, when the loop does not run
        any more."""
        while self.open:
            self._told.clear()
            self.on_done()
            if self.open and not self._results:
                self._told.wait()

    def stop(self) -> None:
        """Ends the thread after what it was given."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
            self._thread = None
        self._close()


def _no_caller(result: Any, error: BaseException | None) -> None:
    """Stands for the caller of `ask`."""
