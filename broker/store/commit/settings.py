"""The persister of a broker, by its configuration."""

from __future__ import annotations

from collections.abc import Callable

from broker.settings.config import Config
from broker.store.commit.persister import Persister


def direct_files(config: Config, open_files_limit: int) -> int:
    """How many files may be open for direct I/O, where `open_files_limit` may be open."""
    return min(config.segment_direct_files, open_files_limit // 8)


def persister_of(config: Config, wake: Callable[[], None], open_files_limit: int) -> Persister:
    """`wake()` asks for the end of a turn."""
    persister = Persister(
        str(config.data_dir),
        wake,
        tail_limit=config.tail_memory,
        segment_size=config.segment_size,
        open_files_limit=open_files_limit,
        no_sync=config.no_sync,
        sync_method=config.sync_method,
        read_retry_after=config.read_retry_after,
    )
    persister.space_ahead = config.segment_space_ahead
    persister.direct.files = direct_files(config, open_files_limit)
    return persister
