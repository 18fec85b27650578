"""New vhosts whose directories were made beforehand, in a thread."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.features import dedup
from tests.crash.inside import Inside


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    inside = Inside(tmp_path / "data")
    inside.features.append(dedup.build(inside))
    return inside.start()


def owned(inside: Inside) -> list[str]:
    return [directory for feature in inside.features for directory in feature.directories]


def test_a_prepared_vhost_makes_no_directory_when_it_is_created(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnation, _ = inside.definitions.prepare(2, owned(inside))
    made: list[str] = []
    monkeypatch.setattr(os, "mkdir", lambda path, *_: made.append(path))
    vhost = inside.definitions.create_vhost("shop", incarnation=incarnation)
    assert made == []
    assert vhost.incarnation == incarnation
    inside.kill()


def test_directories_that_no_vhost_got_are_removed_at_the_next_start(
    tmp_path: Path, inside: Inside
) -> None:
    used, unused = inside.definitions.prepare(2, owned(inside))
    inside.definitions.create_vhost("shop", incarnation=used)
    inside.files.flush()
    inside.kill()
    vhosts = tmp_path / "data" / "vhosts"
    assert (vhosts / f"{unused:016x}" / "queues").is_dir()
    again = Inside(tmp_path / "data").start()
    assert again.definitions.vhosts["shop"].incarnation == used
    assert {each.name for each in vhosts.iterdir()} == {
        f"{vhost.incarnation:016x}" for vhost in again.definitions.vhosts.values()
    }
    again.kill()


def test_what_vhosts_are_said_to_be_follows_each_change(tmp_path: Path, inside: Inside) -> None:
    definitions = inside.definitions
    definitions.create_vhost("shop", description="old")
    definitions.create_vhost("gone")
    definitions.change_vhost("shop", description="new", tags=["a"])
    definitions.remove_vhost("gone")
    inside.files.flush()
    inside.kill()
    again = Inside(tmp_path / "data").start()
    assert list(again.definitions.vhosts) == ["/", "shop"]
    shop = again.definitions.vhosts["shop"]
    assert (shop.description, shop.tags) == ("new", ["a"])
    again.kill()
