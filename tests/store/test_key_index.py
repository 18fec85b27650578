"""The random index: what it finds, in which state its files are, and what it costs to ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.store.keys.hashing import hash_of, siphash_of
from broker.store.keys.places import LocalFile, RemoteFile
from broker.store.keys.searching import IN_FLIGHT
from broker.store.keys.series import Series
from broker.store.keys.unsealed import Unsealed
from tests.store.directory_blobs import DirectoryBlobs
from tests.store.key_series import NAME, Model, play, with_objects


def states(model: Model) -> list[str]:
    """The state of each file, by the folders."""
    return [
        f"{path.parent.name} {int(path.name)}"
        for path in sorted(model.directory.glob("*/*"), key=lambda path: path.name)
    ]


def test_the_hash_is_siphash() -> None:
    # The vectors of the paper's reference code: the key 00..0f, and 00.. as the data.
    secret = bytes(range(16))
    assert siphash_of(secret, b"") == 0x726FDB47DD0E0E31
    assert siphash_of(secret, bytes(range(15))) == 0xA129CA6149BE45E5


def test_equal_values_of_two_names_have_different_hashes() -> None:
    secret = bytes(16)
    assert hash_of(secret, b"message_id", b"1") != hash_of(secret, b"header:message_id", b"1")


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_a_look_at_everything_finds(tmp_path: Path, seed: int) -> None:
    play(with_objects(tmp_path), seed, 1_000)


def test_it_finds_a_key_in_every_state(tmp_path: Path) -> None:
    model = with_objects(tmp_path)
    for number in range(200):
        model.add(b"%d" % (number % 50), 1000 + number)
        model.series.flush()
        if number == 140:
            assert model.series.compact_next() and model.series.compact_next()
            assert model.upload_next()
    assert states(model) == ["uploaded 1", "compacted 2", "unsealed 3", "unsealed 4"]
    assert model.search(b"7").messages == model.brute(b"7")
    assert [message.time for message in model.search(b"7").messages] == [1157, 1107, 1057, 1007]


def test_writing_goes_on_before_a_full_file_is_compacted(tmp_path: Path) -> None:
    model = Model(tmp_path / "index")
    for number in range(65):
        model.add(b"%d" % number, number)
    assert model.series.current().number == 2
    assert model.series.work_waits
    assert len(model.search(b"3").messages) == 1


def test_a_restart_goes_on_with_the_same_file(tmp_path: Path) -> None:
    model = Model(tmp_path / "index")
    for number in range(30):
        model.add(b"k", number)
        model.series.flush()
    model.opened()
    assert model.problems == []
    assert model.series.position(1) == (3, 1008)
    model.add(b"k", 100)
    assert model.series.current().number == 1
    assert model.search(b"k").messages == model.brute(b"k")


def test_a_kill_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    model = Model(tmp_path / "index")
    for number in range(30):
        model.add(b"k", number)
        if number == 19:
            model.series.flush()
    model.opened()
    assert model.series.position(1) == (2, 1008)
    for value, message in model.rows[20:]:
        model.index(value, message)
    assert model.search(b"k").messages == model.brute(b"k")


def test_it_ends_as_soon_as_enough_is_found(tmp_path: Path) -> None:
    model = with_objects(tmp_path)
    for number in range(64 * 30):
        model.add(b"everywhere" if number % 8 == 0 else b"%d" % number, number)
    model.compact()
    while model.upload_next():
        pass
    found = model.search(b"everywhere", most=10)
    assert found.messages == model.brute(b"everywhere", most=10)
    # Eight in a file: two files are needed.
    assert found.searched == 2
    assert found.fetched <= found.searched + IN_FLIGHT
    assert found.left >= 30 - 2 - IN_FLIGHT
    assert found.read <= 16


def test_a_key_in_one_of_many_files_costs_one_request(tmp_path: Path) -> None:
    model = with_objects(tmp_path)
    for number in range(64 * 30):
        model.add(b"%d" % number, number)
    model.compact()
    while model.upload_next():
        pass
    fetched = 0
    for number in range(0, 64 * 30, 64):
        found = model.search(b"%d" % number)
        assert len(found.messages) == 1
        fetched += found.fetched - 1
    # A filter says "maybe" of a key that is not there less than once in two hundred files.
    assert fetched <= 30 * 30 / 200 * 2
    fetched = sum(model.search(b"absent %d" % number).fetched for number in range(200))
    assert fetched <= 200 * 30 / 200 * 1.5


def test_files_that_begin_before_the_range_are_searched(tmp_path: Path) -> None:
    """Defect (a) of the research: only files that begin within the range were looked at."""
    model = Model(tmp_path / "index")
    for number in range(64):
        model.add(b"k", 1000 + number)
    model.compact()
    assert [each.time for each in model.search(b"k", 1060, 2000).messages] == [
        1063, 1062, 1061, 1060,
    ]  # fmt: skip


def test_a_files_end_is_its_end_after_a_restart(tmp_path: Path) -> None:
    """Defect (b): the end was read from the field of the beginning."""
    model = Model(tmp_path / "index")
    for number in range(10):
        model.add(b"k", 1000 + number)
    model.series.flush()
    model.opened()
    assert model.search(b"k", 1009, 1009).messages == model.brute(b"k", 1009, 1009)
    model.compact()
    model.opened()
    (file,) = model.series.files
    assert isinstance(file, LocalFile)
    assert (file.head.first_ms, file.head.last_ms) == (1000, 1009)
    assert len(model.search(b"k", 1009, 1009).messages) == 1


def test_a_file_without_a_message_is_not_written(tmp_path: Path) -> None:
    """Its head would say that it begins in 1970, and searches would believe that after a start."""
    model = Model(tmp_path / "index")
    model.series.current().stream(1, (1, 8))
    assert model.series.flush() == 0
    message = model.add(b"k", 5000)
    model.series.flush()
    model.opened()
    assert model.search(b"k", 4999, 5001).messages == [message]


def test_a_file_that_was_sealed_with_few_messages_is_short(tmp_path: Path) -> None:
    """A deleted stream seals the file that it is in: half a MiB for each, whatever is in it."""
    model = Model(tmp_path / "index", capacity=262_144)
    messages = [model.add(b"%d" % number, 5000 + number) for number in range(20)]
    model.compact()
    (file,) = (tmp_path / "index").glob("*/[0-9]*")
    assert file.stat().st_size < 65_536
    for number, message in enumerate(messages):
        assert model.search(b"%d" % number).messages == [message]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_ranges_are_kept_to_the_millisecond(tmp_path: Path, is_compacted: bool) -> None:
    """Defect (c): a difference in seconds was compared with a range in milliseconds."""
    model = Model(tmp_path / "index")
    for number in range(20):
        model.add(b"k", 5000 + number)
    if is_compacted:
        model.compact()
    for begin in range(4998, 5022):
        assert model.search(b"k", begin, begin + 1).messages == model.brute(b"k", begin, begin + 1)
    # Without the file's help each of these would be read.
    assert model.search(b"k", 5003, 5003).read == 1


def test_it_gives_no_more_than_are_wanted(tmp_path: Path) -> None:
    """Defect (d): one too many."""
    model = Model(tmp_path / "index")
    for number in range(150):
        model.add(b"k", number)
    for most in (1, 2, 63, 64, 65, 149, 150, 151):
        assert len(model.search(b"k", most=most).messages) == min(most, 150)


def test_results_are_in_order_and_streams_are_kept_apart(tmp_path: Path) -> None:
    """Defect (e): results were merged by queue and offset, without an order, and collided."""
    model = Model(tmp_path / "index")
    for number in range(100):
        model.add(b"k", 1000 - number, incarnation=1 + number % 4)
    model.compact()
    found = model.search(b"k").messages
    assert found == model.brute(b"k")
    assert len({(each.incarnation, each.offset) for each in found}) == 100
    assert model.search(b"k", streams={2}).messages == model.brute(b"k", streams={2})


@pytest.mark.parametrize("is_compacted", [False, True])
def test_equal_hashes_are_no_hit(tmp_path: Path, is_compacted: bool) -> None:
    """Defect (f): an equal hash counted as a match."""
    model = Model(tmp_path / "index")
    file = model.series.current()
    hash = hash_of(file.secret, NAME, b"mine")
    model.add(b"mine", 1)
    for number in range(20):
        model.add(b"other", 2 + number, hash=hash)
    if is_compacted:
        model.compact()
    found = model.search(b"mine")
    assert [each.time for each in found.messages] == [1]
    assert found.read == 21


@pytest.mark.parametrize("hash", [0, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1])
def test_every_hash_has_a_slot(tmp_path: Path, hash: int) -> None:
    """Defect (g): the smallest negative hash had a negative slot."""
    model = Model(tmp_path / "index")
    message = model.add(b"k", 1, hash=hash)
    file = model.series.current()
    assert [each.position for each in file.find(hash, 0, 2, None).take(0, 9)] == [message.position]
    model.compact()
    (ordered,) = model.series.files
    assert isinstance(ordered, LocalFile)
    place = ordered.place_of(hash)
    assert place is not None
    assert len(ordered.find(hash, ordered.array(place), 0, 2, None)) == 1


def test_a_key_in_all_messages_is_found_newest_first(tmp_path: Path) -> None:
    model = Model(tmp_path / "index", capacity=20_000)
    file = model.series.current()
    row = file.stream(1, (1, 8))
    hash = hash_of(file.secret, NAME, b"k")
    for number in range(20_000):
        assert file.put(hash, row, 1, number, 1, number)
    assert not file.put(hash, row, 1, 20_000, 1, 20_000)
    model.compact()
    (ordered,) = model.series.files
    assert isinstance(ordered, LocalFile)
    place = ordered.place_of(hash)
    assert place is not None
    found = ordered.find(hash, ordered.array(place), 0, 30_000, None)
    assert len(found) == 20_000
    assert [each.position for each in found.take(0, 3)] == [19_999, 19_998, 19_997]
    assert [each.position for each in found.take(19_999, 3)] == [0]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_times_that_32_bits_do_not_hold_are_compared_in_the_message(
    tmp_path: Path, is_compacted: bool
) -> None:
    model = Model(tmp_path / "index")
    for time in (2**40, 2**40 + 2**34, 2**40 - 2**34, 2**40 + 2**35, 2**40 - 2**35, 0):
        model.add(b"k", time)
        model.add(b"k", time + 1)
    if is_compacted:
        model.compact()
    for begin, end in ((0, 0), (2**40, 2**40), (2**40 + 2**34, 2**41), (-5, 2**40 - 2**34)):
        assert model.search(b"k", begin, end).messages == model.brute(b"k", begin, end)
    for most in range(1, 13):
        assert model.search(b"k", most=most).messages == model.brute(b"k", most=most)


def test_a_range_that_is_turned_round_is_refused(tmp_path: Path) -> None:
    model = Model(tmp_path / "index")
    with pytest.raises(ValueError, match="ends before it begins"):
        model.search(b"k", 10, 9)
    with pytest.raises(ValueError, match="at least one"):
        model.search(b"k", most=0)


def test_files_go_when_no_stream_holds_what_they_name(tmp_path: Path) -> None:
    model = with_objects(tmp_path)
    for number in range(64 * 4):
        model.add(b"%d" % number, number, incarnation=1 + number % 2)
    model.compact()
    assert model.upload_next()
    # The first file names the segments 1 to 4 of both streams.
    assert model.series.expire({1: 4, 2: 4}) == 0
    assert model.series.expire({1: 5, 2: 4}) == 0
    assert model.series.expire({1: 5, 2: 5}) == 1
    assert states(model)[0] == "expired 1"
    assert len(list((tmp_path / "objects").rglob("*-*"))) == 1
    assert model.series.delete_expired() == 1
    assert list((tmp_path / "objects").rglob("*-*")) == []
    # Both are deleted: what is left is the newest, which knows how far they are indexed.
    assert model.series.expire({}) == 2
    assert states(model) == ["compacted 4"]
    model.opened()
    assert model.series.position(1) == (13, 808)


def test_an_upload_that_a_crash_interrupts_leaves_no_object(tmp_path: Path) -> None:
    class Interrupted(DirectoryBlobs):
        def put(self, number: int, data: bytes) -> tuple[str, str]:
            super().put(number, data)
            raise ConnectionError

    model = Model(tmp_path / "index", 64, Interrupted(str(tmp_path / "objects")))
    for number in range(64):
        model.add(b"%d" % number, number)
    model.compact()
    with pytest.raises(ConnectionError):
        model.upload_next()
    assert len(list((tmp_path / "objects").rglob("*-*"))) == 1
    model.opened()
    assert list((tmp_path / "objects").rglob("*-*")) == []
    assert states(model) == ["compacted 1"]
    assert len(model.search(b"3").messages) == 1


def test_an_object_that_is_missing_or_another_one_is_told(tmp_path: Path) -> None:
    model = with_objects(tmp_path)
    for number in range(64):
        model.add(b"%d" % number, number)
    model.compact()
    assert model.upload_next()
    (path,) = (tmp_path / "objects").rglob("*-*")
    content = path.read_bytes()
    path.unlink()
    found = model.search(b"3")
    assert not found.is_complete and "missing" in found.reasons[0]
    path.write_bytes(content[:-1])
    found = model.search(b"3")
    assert not found.is_complete and "not the one" in found.reasons[0]
    assert model.search(b"absent").is_complete


def test_a_file_in_two_states_is_in_the_later_one(tmp_path: Path) -> None:
    model = with_objects(tmp_path)
    for number in range(64):
        model.add(b"%d" % number, number)
    model.series.flush()
    before = (model.directory / "unsealed/0000000001").read_bytes()
    model.compact()
    ordered = (model.directory / "compacted/0000000001").read_bytes()
    assert model.upload_next()
    (model.directory / "unsealed/0000000001").write_bytes(before)
    (model.directory / "compacted/0000000001").write_bytes(ordered)
    (model.directory / "compacted/0000000002.tmp").write_bytes(b"half of it")
    model.opened()
    assert states(model) == ["uploaded 1"]
    assert isinstance(model.series.files[0], RemoteFile)
    assert len(model.search(b"3").messages) == 1


def test_deleted_streams_are_not_carried_on(tmp_path: Path) -> None:
    model = Model(tmp_path / "index")
    model.add(b"a", 1, incarnation=1)
    model.add(b"b", 2, incarnation=2)
    model.series.forget([1])
    model.add(b"b", 3, incarnation=2)
    assert [row.incarnation for row in model.series.current().rows] == [2]
    assert model.series.position(1) is None
    assert model.series.position(2) is not None


def test_the_positions_of_a_new_file_are_those_of_the_one_before(tmp_path: Path) -> None:
    model = Model(tmp_path / "index", capacity=8)
    for number in range(8):
        model.add(b"k", number, incarnation=1)
    model.add(b"k", 9, incarnation=2)
    model.series.flush()
    model.compact()
    model.opened()
    assert model.series.position(1) == (1, 808)
    assert model.series.position(2) == (1, 108)


def test_it_counts_its_files_by_state(tmp_path: Path) -> None:
    model = with_objects(tmp_path)
    for number in range(64 * 3 + 5):
        model.add(b"%d" % number, number)
    model.series.flush()
    model.series.compact_next()
    model.series.compact_next()
    model.upload_next()
    figures = model.series.figures()
    assert {state: row["files"] for state, row in figures.items()} == {
        "unsealed": 2, "compacted": 1, "uploaded": 1,
    }  # fmt: skip
    assert sum(row["items"] for row in figures.values()) == 64 * 3 + 5
    assert figures["unsealed"]["bytes"] > 69 * 32


def test_a_series_takes_no_more_than_it_can_compact(tmp_path: Path) -> None:
    model = Model(tmp_path / "index", capacity=8)
    for number in range(8 * 4):
        model.add(b"k", number)
    assert not model.series.is_stalled
    model.add(b"k", 99)
    assert model.series.is_stalled
    model.series.compact_next()
    assert not model.series.is_stalled


def test_batches_are_only_ever_appended(tmp_path: Path) -> None:
    """So that a snapshot, which notes the length of a file, holds one state of it."""
    path = tmp_path / "file"
    file = Unsealed(str(path), 1, 7, 0, bytes(16), 64)
    row = file.stream(1, (1, 8))
    before = b""
    for number in range(20):
        file.put(number, row, 1, 8 + number, 1, number)
        file.flush()
        content = path.read_bytes()
        assert content.startswith(before) and len(content) > len(before)
        before = content
    file.close()


def test_a_new_series_has_its_own_secret(tmp_path: Path) -> None:
    one, other = Series(str(tmp_path / "1"), 64), Series(str(tmp_path / "2"), 64)
    for series in (one, other):
        series.recover()
    assert one.current().secret != other.current().secret
