"""The random index of streams: which messages have a key, found without reading the streams.

`reading` takes the keys out of segments, `feeding` puts them into the vhost's series of files
(`broker.store.keys`) behind the streams' own writing, `messages` compares what an index says with
the messages, `vhost_index` is one vhost's index, and `feature` runs them all
(docs/stream-index.md).
"""

from __future__ import annotations

from typing import Any


def build(host: Any) -> Any:
    """The indexes of a broker; control verbs find them as `host.stream_indexes`."""
    from broker.features.stream_index.feature import StreamIndexes

    host.stream_indexes = StreamIndexes(host)
    return host.stream_indexes
