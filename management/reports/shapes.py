"""What a report is made of: its views, their keys and columns, the tables it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .measures import VHOST, Column

Grain = Literal["hour", "day", "month"]


@dataclass(frozen=True)
class View:
    """One table of a report. `keys` are its text columns and the columns of the usage tables they
    are. Rows are sorted by `order`; a name with `-` in front from the greatest down. `search` names
    the column that a search looks in; the first column of time, if there is one, is the chart's.
    `grains`: the tables that hold such rows, if not all of the report's.
    """

    name: str
    title: str
    keys: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    search: str
    grains: tuple[Grain, ...] = ()

    @property
    def plural(self) -> str:
        """What several of its objects are called."""
        title = self.title.lower()
        return f"{title[:-1]}ies" if title.endswith("y") else f"{title}s"

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def time(self) -> str:
        return next((column.name for column in self.columns if column.kind == "time"), "")


@dataclass(frozen=True)
class Report:
    """One report. `transform` names the function in `module`, which only Spark's side imports.

    `grains` are the tables it can read, `views` the ways to show it; the first of each is the
    default, as are the last `days`. Every view has a column `vhost`, by which rows are shown or not
    to users who may see some virtual hosts only. `compares` says that it also reads the period of
    the same length before. `every` is `schedule` or `day`: how often it is computed by itself.
    `charges` says that it prices what it counts, by `costs` instead of `transforms`, and closes
    months. `wants_disk` says that the transform is also given the free bytes of the disk,
    `wants_cover` the time that the feed covers (`transforms.cover`).
    `by_time`: each row is computed from the usage of its own hour, day or month alone, and all
    views have the newest rows first (`pieces`).
    """

    name: str
    title: str
    summary: str
    transform: str
    grains: tuple[Grain, ...]
    days: int
    views: tuple[View, ...]
    compares: bool = False
    charges: bool = False
    wants_disk: bool = False
    wants_cover: bool = False
    module: str = "transforms"
    every: Literal["schedule", "day"] = "day"
    by_time: bool = False

    def view(self, name: str = "") -> View:
        """A view by its name, the first one by default. Raises ValueError."""
        for view in self.views:
            if name in ("", view.name):
                return view
        names = ", ".join(view.name for view in self.views)
        raise ValueError(f"report {self.name} has no rows by {name!r}: by is one of {names}")


QUEUE_KEYS = (("vhost", "vhost"), ("queue", "name"))
EXCHANGE_KEYS = (("vhost", "vhost"), ("exchange", "name"))
CLIENT_KEYS = (
    ("vhost", "vhost"),
    ("user", "user"),
    ("client", "client"),
    ("version", "client_version"),
)
CONNECTION_KEYS = (*CLIENT_KEYS, ("connection", "name"), ("id", "id"))


def texts(keys: tuple[tuple[str, str], ...], title: str) -> tuple[Column, ...]:
    """The text columns of a view; the last one has the view's title."""
    return (VHOST, *(Column(name, "text", title) for name, _ in keys[1:]))
