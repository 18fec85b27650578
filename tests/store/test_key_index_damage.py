"""The random index with damaged files, on a full disk, and after any crash: it never shows what is
not true, says what it lacks, and is whole again when the streams are read again."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.store.files import disk
from broker.store.keys.rows import Damaged
from broker.store.keys.series import Gap
from broker.store.keys.unsealed import Unsealed
from tests.store import recorder
from tests.store.key_series import Model, with_objects


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    recorder.fail("write", 0, 0)


def filled(model: Model, count: int = 256) -> Model:
    for number in range(count):
        model.add(b"%d" % (number % 40), 1000 + number, incarnation=1 + number % 2)
    return model


def refill(model: Model) -> None:
    """Indexes what the series says it does not know, as the service does from the streams."""
    series = model.series
    for gap in series.gaps:
        for value, message in model.rows:
            place = message.segment, message.position
            if message.incarnation == gap.incarnation and gap.begin <= place < gap.end:
                position = series.position(message.incarnation) or (1, 8)
                model.index(value, message)
                file = series.current()
                file.pass_by(file.stream(message.incarnation, position), *position, 0)
    series.gaps.clear()
    series.filled()
    for value, message in model.rows:
        if (message.segment, message.position) >= (series.position(message.incarnation) or (1, 8)):
            model.index(value, message)


def check(model: Model) -> None:
    for number in range(40):
        value = b"%d" % number
        found = model.search(value)
        assert found.messages == model.brute(value)
        assert found.is_complete, found.reasons


def test_no_damaged_byte_of_a_compacted_file_goes_unnoticed(tmp_path: Path) -> None:
    """Defect (h): there was no checksum."""
    model = filled(Model(tmp_path / "index", capacity=256))
    model.compact()
    path = model.directory / "compacted/0000000001"
    right = path.read_bytes()
    places = random.Random(1).sample(range(len(right)), 200)
    for place in places:
        path.write_bytes(
            right[:place] + bytes([right[place] ^ 1 << place % 8]) + right[place + 1 :]
        )
        model.opened()
        for number in range(0, 40, 7):
            value = b"%d" % number
            found = model.search(value)
            if found.is_complete and not model.series.gaps and not model.problems:
                assert found.messages == model.brute(value), place
            else:
                assert set(found.messages) <= set(model.brute(value)), place
    path.write_bytes(right)


def test_damage_that_a_search_meets_is_told_and_made_good(tmp_path: Path) -> None:
    model = filled(Model(tmp_path / "index"))
    model.compact()
    path = model.directory / "compacted/0000000002"
    content = path.read_bytes()
    # The last array of the file: which key it has does not matter.
    path.write_bytes(content[:-10] + bytes(10))
    lacking = [model.search(b"%d" % number) for number in range(40)]
    told = {reason for found in lacking for reason in found.reasons}
    assert len(told) == 1 and "checksum" in next(iter(told))
    assert model.series.damaged == {2}
    model.series.retire(2)
    assert model.series.gaps == [Gap(1, (4, 208), (7, 408)), Gap(2, (4, 208), (7, 408))]
    model.series.damaged.clear()
    refill(model)
    check(model)
    assert path.exists()
    while model.series.compact_next():
        pass
    assert not path.exists()
    check(model)
    model.opened()
    assert model.problems == []
    check(model)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_file_that_cannot_be_read_at_a_start_is_made_again(tmp_path: Path, number: int) -> None:
    model = filled(Model(tmp_path / "index"), 300)
    model.series.flush()
    while model.series.compact_next():
        pass
    path = model.directory / f"compacted/{number:010d}"
    path.write_bytes(b"LVRX" + bytes(4000))
    model.opened()
    assert len(model.problems) == 1 and str(path) in model.problems[0]
    refill(model)
    check(model)


def test_the_damaged_bytes_of_an_unsealed_file_are_cut(tmp_path: Path) -> None:
    model = Model(tmp_path / "index", capacity=64)
    for number in range(40):
        model.add(b"%d" % number, number)
        model.series.flush()
    path = model.directory / "unsealed/0000000001"
    right = path.read_bytes()
    for place in random.Random(2).sample(range(len(right)), 60):
        path.write_bytes(right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :])
        model.opened()
        refill(model)
        check(model)
        model.series.close()
        shutil.rmtree(model.directory)
        (model.directory / "unsealed").mkdir(parents=True)


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 65, 200, 1000])
def test_a_cut_unsealed_file_goes_on_from_its_last_batch(tmp_path: Path, cut: int) -> None:
    model = Model(tmp_path / "index", capacity=64)
    for number in range(40):
        model.add(b"%d" % number, number)
        if number % 7 == 0:
            model.series.flush()
    path = model.directory / "unsealed/0000000001"
    path.write_bytes(path.read_bytes()[:cut])
    model.opened()
    refill(model)
    check(model)


def test_lost_items_at_the_end_of_a_full_file_are_no_gap(tmp_path: Path) -> None:
    """The file behind it knows a position past them: it is made again too."""
    model = Model(tmp_path / "index", capacity=64)
    for number in range(100):
        model.add(b"%d" % (number % 40), number)
        model.series.flush()
    path = model.directory / "unsealed/0000000001"
    path.write_bytes(path.read_bytes()[:-20])
    model.opened()
    assert [path.name for path in (model.directory / "unsealed").iterdir()] == ["0000000001"]
    refill(model)
    check(model)


def test_what_is_no_index_file_is_refused_or_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"x" * 64, bytes(1 << 16)):
        path.write_bytes(content)
        with pytest.raises(Damaged):
            Unsealed.load(str(path))
    model = filled(Model(tmp_path / "index"))
    model.series.flush()
    (model.directory / "compacted/readme").write_text("mine")
    model.opened()
    assert len(model.problems) == 1 and "readme" in model.problems[0]
    assert (model.directory / "compacted/readme").exists()


def test_a_full_disk_holds_up_no_search_and_loses_nothing(tmp_path: Path) -> None:
    model = Model(tmp_path / "index")
    for number in range(200):
        model.add(b"%d" % (number % 40), number)
        if number % 10 == 0:
            recorder.fail("write", 1, errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                model.series.flush()
            if model.series.work_waits:
                recorder.fail("write", 1, errno.ENOSPC)
                with pytest.raises(OSError, match="No space"):
                    model.series.compact_next()
            recorder.fail("write", 0, 0)
    check(model)
    assert list(model.directory.rglob("*.tmp")) == []
    model.series.flush()
    model.opened()
    check(model)
    while model.series.compact_next():
        pass
    check(model)


class Crash(Exception):
    """The process ends here."""


STEPS = ("write_new", "rename", "unlink", "write_atomic", "make_all", "sync_directory")


def life(model: Model) -> None:
    """Through all states."""
    filled(model, 200)
    model.series.flush()
    while model.series.compact_next():
        pass
    while model.upload_next():
        pass
    model.series.expire({1: 5, 2: 5})
    model.series.delete_expired()


def killed(model: Model, steps: int) -> bool:
    """Ends a life before the step of this number; whether it came so far."""
    left = [steps]

    def limited(name: str) -> Callable[..., object]:
        real = getattr(disk, name)

        def call(*args: object) -> object:
            if left[0] == 0:
                raise Crash
            left[0] -= 1
            return real(*args)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in STEPS:
            patched.setattr(disk, name, limited(name))
        try:
            life(model)
        except Crash:
            return True
    return False


def test_it_is_whole_after_a_kill_at_every_step(tmp_path: Path) -> None:
    """What is made good afterwards finds everything, and no object is left that no file names."""
    step = 0
    was_killed = True
    while was_killed:
        place = tmp_path / str(step)
        place.mkdir()
        model = with_objects(place)
        was_killed = killed(model, step)
        for number in range(len(model.rows), 200):
            model.add_unindexed(b"%d" % (number % 40), 1000 + number, 1 + number % 2)
        model.opened()
        refill(model)
        for number in range(40):
            value = b"%d" % number
            # What stood in the first four segments may have expired.
            found = [each for each in model.search(value).messages if each.segment >= 5]
            assert found == [each for each in model.brute(value) if each.segment >= 5], step
        objects = {path.name[:10] for path in (place / "objects").rglob("*-*")}
        named = {path.name for path in (place / "index/uploaded").iterdir()}
        named |= {path.name for path in (place / "index/expired").iterdir()}
        assert objects <= named, step
        step += 1
    assert step > 20
