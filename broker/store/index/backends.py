"""The backends of the location index, by the name that the settings give."""

from __future__ import annotations

from broker.store.index.location_index import IndexSettings, LocationIndex
from broker.store.index.ram_index import RamIndex


def open_index(settings: IndexSettings, directory: str, clean: bool) -> LocationIndex:
    """The index of a body store's directory: with its entries if the last stop was `clean`,
    otherwise empty. Raises IndexDamaged."""
    if settings.backend == "leveldb":
        # LevelDB's library is loaded only where it is used.
        from broker.store.index.leveldb_index import LevelIndex

        return LevelIndex(directory, settings, clean)
    return RamIndex(directory, clean)
