"""Commands that show the object store and take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from management.ctl.node import size
from management.ctl.table import Call, Command, Facts, enter, runs


@runs(
    Command(
        name="tiers",
        group="node",
        help="Shows the object store that segments of streams go to: how it is, what waits, and "
        "what it cost.",
        examples=("tiers", "tiers --format json"),
        verb="tiers",
        says="Object store ...",
    )
)
async def tiers(call: Call) -> Facts:
    found = await call.ask("tiers")
    groups: dict[str, Mapping[str, Any]] = {
        "Store": {
            "Address": found["store"],
            "State": found["state"],
            "Problem": found["problem"] or "(none)",
            "This appliance": found["appliance"],
            "Owner": found["owner"] or "(not known)",
        },
        "Segments": {
            "Streams": found["streams"],
            "Objects": found["objects"],
            "To be deleted": found["objects_to_delete"],
            "Waiting": f"{found['pending_segments']}, {size(found['pending_bytes'])}",
            "Refused": found["refused_segments"],
        },
        "Since the start": {
            "Put": f"{found['uploaded_segments']}, {size(found['uploaded_bytes'])}",
            "Blocks fetched": found["fetched_blocks"],
            "Deleted": found["deleted_objects"],
            "Failures": found["upload_failures"]
            + found["fetch_failures"]
            + found["deletion_failures"],
            "Requests": found["store_requests"],
            "Sent": size(found["store_bytes_sent"]),
            "Received": size(found["store_bytes_received"]),
        },
        "Cache": {
            "Size": f"{size(found['cache_bytes'])} of {size(found['cache_bytes_max'])}",
            "Waiting readers": found["waiting_readers"],
        },
    }
    return Facts(groups, found)


enter(
    Command(
        name="adopt_tiers",
        group="node",
        help="Makes the prefix in the object store this appliance's: for the copy of a backup "
        "whose original is no more.",
        examples=("adopt_tiers",),
        verb="tiers.adopt",
        says="Taking the object store ...",
    )
)
