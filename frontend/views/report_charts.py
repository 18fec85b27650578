"""The charts of a report's page as numbers that templates draw: bars, stacked bars, a heat map."""

from __future__ import annotations

from math import ceil
from typing import Any

from frontend import addresses, figures
from management.reports import charted
from management.reports.charted import Stack, Total
from management.reports.measures import Column
from management.reports.pages import Result, Where
from management.reports.shapes import Report, View

WIDTH, HEIGHT, TOP_PAD = 640, 180, 12
CELL = 24
LETTER = 11
"""Room for a letter of an axis: 20 px high on a narrow screen."""
SHADES = 8
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
FORMATS = {"count": figures.count, "bytes": figures.size, "money": figures.money}


def charts(report: Report, result: Result, view: View, where: Where, wanted: str) -> dict[str, Any]:
    """What the page draws of all rows that match; `wanted` names the column, if there is such."""
    by = charted.measure(view, wanted)
    if by is None or report.wants_disk:  # the disk is one object
        return {}
    told = charted.totals(result, view, by, where)
    if not told:
        return {}
    facts: dict[str, Any] = {
        "measure": by,
        "measures": charted.measures(view),
        "totals": _bars(told, view, by),
    }
    if view.time and view.columns[0].name == view.time:
        named = [one for one in told if one.keys][: charted.STACKED]
        others = len(told) > len(named)
        facts["stacked"] = stacked(charted.stacks(result, view, by, where, named), by, others)
        facts["stacked"]["legend"] = [
            (f"series-{number + 1}", " / ".join(one.keys)) for number, one in enumerate(named)
        ] + ([("series-rest", "all others")] if others else [])
        if report.grains[0] == "hour" or "hour" in view.time:
            facts["week"] = _week(charted.week(result, view, by, where), by)
    return facts


def page_of(view: View, keys: tuple[str, ...]) -> str:
    """The page of a row's object, if it has one; of a user, the connections."""
    last = view.keys[-1][0]
    if len(keys) == 1:
        return addresses.vhost(keys[0]) if last == "vhost" and keys[0] else ""
    if len(keys) != 2 or not keys[1]:
        return ""
    if last == "queue":
        return addresses.queue(*keys)
    if last == "user":
        return addresses.connections_of(keys[1])
    return addresses.exchange(*keys) if last == "exchange" else ""


def _bars(told: list[Total], view: View, by: Column) -> list[dict[str, Any]]:
    # All others together would make every bar beside them short.
    most = max(one.value for one in told if one.keys)
    spell = FORMATS[by.kind]
    return [
        {
            "names": one.keys,
            "others": one.others,
            "value": spell(one.value),
            "width": f"{100 * one.value / most:.1f}" if one.keys else "",
            "url": page_of(view, one.keys) if one.keys else "",
        }
        for one in told
    ]


def stacked(stacks: list[Stack], by: Column, others: bool) -> dict[str, Any]:
    """Bars over time, with the texts of both axes."""
    spell = FORMATS[by.kind]
    most = max((sum(one.values) for one in stacks), default=0) or 1
    width = WIDTH / max(len(stacks), 1)
    bars = []
    for number, one in enumerate(stacks):
        y = float(TOP_PAD + HEIGHT)
        for index, value in enumerate(one.values):
            if value <= 0:
                continue
            height = HEIGHT * value / most
            y -= height
            rest = others and index == len(one.values) - 1
            bars.append(
                {
                    "x": f"{number * width + width * 0.1:.1f}",
                    "y": f"{y:.1f}",
                    "width": f"{width * 0.8:.1f}",
                    "height": f"{max(height, 0.5):.1f}",
                    "series": "series-rest" if rest else f"series-{index + 1}",
                    "title": f"{_when(one, stacks)}: {spell(value)} of {spell(sum(one.values))}",
                }
            )
    places = [(TOP_PAD, most), (TOP_PAD + HEIGHT / 2, most // 2), (TOP_PAD + HEIGHT, 0)]
    lines = [(f"{y:g}", spell(value)) for y, value in places]
    left = 12 + LETTER * max(len(text) for _, text in lines)
    return {
        "bars": bars,
        "labels": _times(stacks, width),
        "lines": lines,
        "left": left,
        "whole": left + WIDTH + 4,
        "width": WIDTH,
        "height": TOP_PAD + HEIGHT + 28,
    }


def _times(stacks: list[Stack], width: float) -> list[tuple[str, str]]:
    """The texts below the bars, as many as stand beside each other and inside the drawing."""
    texts = [_when(one, stacks) for one in stacks]
    room = LETTER * max(map(len, texts), default=1)
    every = max(1, ceil(room / width))
    found: list[tuple[str, str]] = []
    for number in range(0, len(texts), every):
        x = (number + 0.5) * width
        if x + room / 2 <= WIDTH + 4 or not found:
            found.append((f"{x:.1f}", texts[number]))
    return found


def _when(one: Stack, stacks: list[Stack]) -> str:
    if all(each.at.day == 1 and not each.at.hour for each in stacks):
        return f"{one.at:%b %Y}"
    if all(not each.at.hour for each in stacks):
        return f"{one.at:%b} {one.at.day}"
    return f"{one.at:%b} {one.at.day} {one.at:%H:%M}"


def _week(hours: list[float | None], by: Column) -> dict[str, Any]:
    spell = FORMATS[by.kind]
    most = max((value for value in hours if value is not None), default=0) or 1
    cells = []
    for place, value in enumerate(hours):
        day, hour = divmod(place, 24)
        shade = 0 if not value else 1 + min(SHADES - 1, int(value / most * SHADES))
        said = "not counted" if value is None else f"{spell(int(value))} on average"
        cells.append(
            {"x": 36 + hour * CELL, "y": day * CELL, "shade": shade,
             "title": f"{DAYS[day]} {hour:02}:00 UTC: {said}"}
        )  # fmt: skip
    return {
        "cells": cells,
        "days": [(number * CELL + 15, name) for number, name in enumerate(DAYS)],
        "hours": [(36 + hour * CELL, f"{hour:02}") for hour in range(0, 24, 3)],
        "width": 36 + 24 * CELL,
        "height": 7 * CELL + 18,
        "size": CELL - 2,
        "most": spell(int(most)),
    }
