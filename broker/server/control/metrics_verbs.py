"""The verb that gives a page of metrics to the web process."""

from __future__ import annotations

from typing import Any

from broker.access.patterns import BadPattern
from broker.schema.control_schema import Metrics
from broker.server.control.requests import Request, bad_request, handles, not_found


@handles("metrics")
async def metrics(request: Request[Metrics]) -> Any:
    # The pages import views of the control socket.
    from broker.server.metrics import CONTENT_TYPE, lines_of, text_of

    try:
        lines = lines_of(request.broker, request.args.path, request.args.query)
    except BadPattern as error:
        raise bad_request(f"queue: {error}") from None
    if lines is None:
        raise not_found("metrics are at /metrics")
    return {"body": await text_of(lines), "content_type": CONTENT_TYPE}
