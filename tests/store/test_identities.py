"""The ids of appliance and node in a data directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.store.directory.identities import identities
from broker.store.directory.snapshot import LEFT_OUT


def test_a_new_directory_gets_two_random_ids_that_stay(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    made = identities(str(tmp_path))
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)
    assert len({*made, *identities(str(tmp_path / "other"))}) == 4
    assert identities(str(tmp_path)) == made


def test_a_directory_of_an_earlier_version_keeps_its_appliance_and_gets_a_node(
    tmp_path: Path,
) -> None:
    (tmp_path / "appliance_id").write_text("0123456789abcdef" * 2 + "\n")
    found = identities(str(tmp_path))
    assert found.appliance == "0123456789abcdef" * 2
    assert (tmp_path / "node_id").read_text() == f"{found.node}\n"


@pytest.mark.parametrize("name", ["appliance_id", "node_id"])
def test_a_file_without_an_id_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=rf"{name}: 'mine' is not an id.*remove it"):
        identities(str(tmp_path))
    assert (tmp_path / name).read_text() == "mine"


def test_a_backup_has_neither() -> None:
    assert {"appliance_id", "node_id"} <= LEFT_OUT
