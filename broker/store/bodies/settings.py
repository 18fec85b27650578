"""The settings of a vhost's body store, as `broker.settings.config` gives them."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.settings.config import Config
from broker.store.index.location_index import IndexSettings


@dataclass(frozen=True, slots=True)
class BodySettings:
    """Sizes are bytes, times seconds, the rate bytes a second."""

    embed_below: int = 4096
    file_size: int = 16 << 20
    own_file: int = 4_000_000
    write_buffer: int = 1 << 20
    collect_rate: int = 64 << 20
    collect_quiet: float = 15.0
    index: IndexSettings = field(default_factory=IndexSettings)


def body_settings(config: Config) -> BodySettings:
    """The settings of every vhost's body store."""
    return BodySettings(
        embed_below=config.embed_below,
        file_size=config.body_file_size,
        own_file=config.body_own_file,
        write_buffer=config.body_write_buffer,
        collect_rate=config.body_collect_rate,
        collect_quiet=config.body_collect_quiet,
        index=IndexSettings(
            backend=config.message_store_index,
            memory=config.message_store_index_memory,
            write_buffer=config.message_store_index_write_buffer,
            verify_checksums=config.message_store_index_verify_checksums,
            sync=config.message_store_index_sync,
            bloom_capacity=config.bloom_filter_size,
            open_files=config.message_store_index_open_files,
        ),
    )
