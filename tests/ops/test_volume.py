"""A data directory that is the root of a volume has what its file system puts there."""

from __future__ import annotations

from pathlib import Path

from broker.store.directory import snapshot


def test_a_backup_leaves_out_what_the_file_system_keeps_for_itself(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "vhosts" / "lost+found").mkdir(parents=True)
    (tmp_path / "users.json").write_text("[]")
    try:
        assert snapshot.take(str(tmp_path)).files == 1
        tree = tmp_path / "snapshot" / "tree"
        assert {path.name for path in tree.iterdir()} == {"vhosts", "users.json"}
        assert (tree / "vhosts" / "lost+found").is_dir()
    finally:
        snapshot.drop(str(tmp_path))
    rows = snapshot.contents(str(tmp_path), snapshot.LEFT_OUT)
    assert "lost+found/" not in {path for path, _, _ in rows}
