"""An S3 server on this machine (moto's) that fails as a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "bucket"

Answered = Iterable[bytes]


class FailingS3:
    """A server with one bucket. `fault`: what it does to requests about segments, if anything:
    `denies`, `full`, `slow`, `garbage`, `older` (it answers with another object)."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self.fault = ""
        self.requests: list[tuple[str, str]] = []
        self.released = threading.Event()
        """Set: slow answers come at once."""
        self.delay = 0.0
        """Seconds that each answer takes besides."""
        self._server: Any = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listens, at the same port as before if it did."""
        self._server = make_server("127.0.0.1", self.port, self, threaded=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """No connection is accepted any more."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Answered:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        is_segment = path.count("/") > 4
        time.sleep(self.delay)
        if self.fault == "slow" and is_segment:
            self.released.wait(30)
        elif self.fault == "denies" and is_segment:
            return refuse(start_response, "403 Forbidden", "AccessDenied", "Access Denied")
        elif self.fault == "full" and method == "PUT" and is_segment:
            text = "Storage backend has reached its minimum free drive threshold."
            return refuse(start_response, "507 Insufficient Storage", "XMinioStorageFull", text)
        elif self.fault == "garbage" and method == "GET" and is_segment:
            start_response("200 OK", [("Content-Type", "text/html")])
            return [b"<html>please sign in</html>"]
        elif self.fault == "older" and method == "GET" and is_segment:
            environ = {**environ, "PATH_INFO": self._another(path), "RAW_URI": self._another(path)}
        found: Answered = self._app(environ, start_response)
        return found

    def _another(self, path: str) -> str:
        return next(each for method, each in self.requests if method == "PUT" and "/000" in each)


def refuse(
    start_response: Callable[..., Any], status: str, code: str, text: str
) -> Iterator[bytes]:
    """An error as S3 answers it."""
    start_response(status, [("Content-Type", "application/xml")])
    return iter([f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()])
