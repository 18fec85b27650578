"""Answers compressed with gzip, where that is worth it and safe.

Compression tells the length of a secret to an attacker who can put text beside it and watch the
size of the answer (BREACH). Three things prevent that: an answer to a request that another site
caused is not compressed, Django masks the CSRF token anew in each page, and Django's compressor
adds up to 100 random bytes to each answer.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator

from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_vary_headers

from management.middleware import GetResponse, Middleware

SMALL = 1024
"""Answers with fewer bytes stay as they are: they fit into one packet anyway."""

LARGE = 64 * 1024
"""From this number of bytes on, compression runs off the event loop: it takes about 1 ms."""

AS_IT_IS = ("text/event-stream", "image/", "font/", "application/gzip", "application/zip")
"""Starts of media types that are compressed already, or whose parts must not wait."""

_GZIP_FORMAT = 31
"""zlib's word for a gzip header and trailer with a window of 32 KiB."""

_LEVEL = 6


class Compression(Middleware):
    """The outermost middleware: compresses pages, lists and streamed answers."""

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        self._gzip = GZipMiddleware(_unused)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = await self.get_response(request)
        if response.get("Content-Type", "").startswith(AS_IT_IS):
            return response
        if _caused_elsewhere(request):
            patch_vary_headers(response, ("Accept-Encoding", "Sec-Fetch-Site"))
            return response
        if isinstance(response, StreamingHttpResponse):
            return _streamed(request, response)
        size = len(response.content)
        if size < SMALL:
            return response
        if not accepts_gzip(request.headers.get("Accept-Encoding", "")):
            patch_vary_headers(response, ("Accept-Encoding",))
            return response
        if size < LARGE:
            return self._gzip.process_response(request, response)
        return await asyncio.to_thread(self._gzip.process_response, request, response)


def _unused(request: HttpRequest) -> HttpResponseBase:
    raise NotImplementedError("only answers are given to Django's middleware")


def _caused_elsewhere(request: HttpRequest) -> bool:
    """Whether a browser says that another site caused the request. Other clients say nothing."""
    return request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")


def _streamed(request: HttpRequest, response: StreamingHttpResponse) -> HttpResponseBase:
    # Django's own middleware makes each chunk a gzip file of its own, of which several client
    # libraries read only the first.
    if not response.is_async or response.has_header("Content-Encoding"):
        return response
    patch_vary_headers(response, ("Accept-Encoding",))
    if accepts_gzip(request.headers.get("Accept-Encoding", "")):
        response.streaming_content = _compressed(response.streaming_content)
        response.headers["Content-Encoding"] = "gzip"
        response.headers.pop("Content-Length", None)
    return response


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header names gzip and does not refuse it with `q=0`."""
    for part in header.split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip().lower() == "gzip":
            quality = weight.strip().removeprefix("q=")
            return quality.strip("0.") != "" or not weight
    return False


async def _compressed(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
    async for chunk in chunks:
        if len(chunk) < LARGE:
            part = compressor.compress(chunk)
        else:
            part = await asyncio.to_thread(compressor.compress, chunk)
        if part:
            yield part
    yield compressor.flush()
