"""The index of a stream whose segments are in the object store: it reads them there, a search finds
them there, and its own files go there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.features.stream_index.uploads import Uploads
from broker.schema.tier_work import Answer, Task
from tests.tiers.indexed import EVERY, Indexed
from tests.tiers.rig import NAME

COUNT = 60
MANY = 200


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Indexed]:
    made = Indexed(tmp_path / "data", tmp_path / "store").start()
    yield made
    made.kill()


def all_cold(rig: Indexed) -> None:
    rig.connect()
    rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 1)


def indexed(rig: Indexed, count: int = COUNT) -> None:
    """A stream that is indexed and all but its last segment in the store only, with an empty
    cache."""
    rig.declare(stream_index="message_id, header:shared")
    rig.publish(count)
    rig.catch_up()
    all_cold(rig)


def away(task: Task) -> Answer | None:
    """A store that does not answer."""
    return Answer(task.id, "store", "it is on fire") if task.kind != "open" else None


# -- indexing what is in the store -----------------------------------------------------------------


def test_a_key_that_is_named_later_is_read_out_of_the_store(rig: Indexed) -> None:
    rig.declare()
    rig.publish(COUNT)
    all_cold(rig)
    rig.counted()
    rig.set_policy(stream_index="message_id")
    rig.catch_up()
    assert rig.counted("get") == rig.cold(), "each segment is fetched once"
    rig.check(every=1)
    assert rig.index.whole_from(rig.stream.incarnation, "message_id") is None


def test_an_index_that_was_lost_is_made_again_out_of_the_store(rig: Indexed) -> None:
    indexed(rig)
    rig.kill()
    shutil.rmtree(rig.directory.joinpath(*rig.index.directory.split("/")[-3:]))
    again = rig.again()
    try:
        again.connect()
        again.catch_up()
        again.check(every=1)
    finally:
        again.kill()


def test_while_the_store_is_away_the_index_waits_and_says_so_and_others_go_on(
    rig: Indexed,
) -> None:
    rig.declare()
    rig.publish(COUNT)
    all_cold(rig)
    rig.answer = away
    rig.vhost.declare_queue("other", durable=True, arguments={"x-queue-type": "stream"})
    rig.set_policy(stream_index="message_id")
    rig.until(lambda: "object store" in rig.index.problem)
    other = rig.vhost.queues["other"]
    assert rig.behind() > 0
    assert rig.index.behind(other.incarnation, other.store.synced_end) == 0
    rig.answer = lambda _: None
    rig.catch_up()
    assert rig.index.problem == ""
    rig.check()


def test_a_damaged_copy_in_the_cache_is_not_indexed_but_fetched_again(rig: Indexed) -> None:
    rig.declare()
    rig.publish(COUNT)
    all_cold(rig)
    damaged: list[str] = []

    def damage(task: Task) -> Answer | None:
        if task.kind == "get" and not damaged:
            answer = rig.work.carry_out(task)
            with Path(task.path).open("r+b") as file:
                file.seek(100)
                file.write(bytes(200))
            damaged.append(task.path)
            return answer
        return None

    rig.answer = damage
    rig.set_policy(stream_index="message_id")
    rig.catch_up()
    assert damaged
    rig.check(every=1)


def test_segments_that_retention_takes_before_they_are_indexed_are_passed_over(
    rig: Indexed,
) -> None:
    rig.declare()
    rig.publish(COUNT)
    all_cold(rig)
    rig.answer = away
    rig.set_policy(stream_index="message_id")
    rig.second()
    rig.stream.store.retain(20, -1, -1)
    first = rig.stream.store.first_offset
    assert first > 0
    rig.answer = lambda _: None
    rig.catch_up()
    rig.check(every=1)
    assert rig.offsets_of(first - 1) == []


def test_what_a_full_file_had_is_indexed_again_where_it_is_damaged(rig: Indexed) -> None:
    """Also what was read into it last, before it was found to be full."""
    rig.vhost.declare_queue(
        NAME, durable=True, arguments={"x-queue-type": "stream", "x-stream-index": "message_id"}
    )
    rig.publish(MANY)
    rig.catch_up()
    # Not the next one: it has what comes after.
    path = Path(rig.index.directory, "compacted/0000000001")
    path.write_bytes(path.read_bytes()[:-2000] + bytes(2000))
    for offset in range(MANY):
        rig.find(offset)
    rig.until(lambda: rig.index.is_whole)
    rig.check(every=1)


# -- searching -------------------------------------------------------------------------------------


def test_a_hit_in_the_store_costs_one_request_and_no_more_than_its_block(rig: Indexed) -> None:
    indexed(rig)
    rig.counted()
    answer = rig.find(3)
    assert [message.offset for message in answer.messages] == [3] and answer.is_complete
    assert answer.fetched == rig.counted("get") == 1
    answer = rig.find(3)
    assert answer.fetched == rig.counted("get") == 0, "it is in the cache now"
    assert rig.find("absent").fetched == rig.counted("get") == 0


def test_a_search_stops_as_soon_as_enough_is_found_in_the_store(rig: Indexed) -> None:
    indexed(rig)
    rig.counted()
    answer = rig.find(0, "header:shared", most=2)
    newest = [offset for offset in range(COUNT) if offset % EVERY == 0][-2:]
    assert [message.offset for message in answer.messages] == newest[::-1]
    assert answer.fetched == rig.counted("get") <= 2


def test_a_search_makes_no_more_requests_than_it_may_and_says_so(tmp_path: Path) -> None:
    rig = Indexed(tmp_path / "data", tmp_path / "store", stream_search_fetches_max=3).start()
    try:
        indexed(rig)
        rig.counted()
        answer = rig.find(0, "header:shared")
        assert not answer.is_complete
        assert "stream_search_fetches_max" in answer.reasons[0]
        assert answer.fetched == rig.counted("get") == 3
        assert 0 < len(answer.messages) < COUNT // EVERY
    finally:
        rig.kill()


def test_a_search_says_that_the_store_is_away(rig: Indexed) -> None:
    indexed(rig)
    rig.answer = away
    answer = rig.find(3)
    assert answer.messages == [] and not answer.is_complete
    assert "the object store does not give them now" in answer.reasons[0]
    assert "on fire" not in str(answer.reasons), "who searches need not know where it is"
    rig.answer = lambda _: None
    rig.until(lambda: rig.tiers._cold.pause.is_over)
    assert rig.offsets_of(3) == [3]


def test_a_search_that_meets_a_damaged_copy_says_so_and_the_next_one_finds_it(
    rig: Indexed,
) -> None:
    indexed(rig)
    assert rig.offsets_of(3) == [3]
    for path in (rig.directory / "run/cold").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    answer = rig.find(3)
    assert answer.messages == [] and "damaged" in answer.reasons[0]
    rig.seconds += 60
    assert rig.offsets_of(3) == [3]


def test_a_long_head_of_a_message_in_the_store_is_read_whole(rig: Indexed) -> None:
    rig.properties_of = lambda offset: _long(offset)  # type: ignore[method-assign]
    indexed(rig, 12)
    assert rig.offsets_of(3) == [3]


def _long(offset: int) -> bytes:
    from broker.fields import properties

    headers = {"padding": "x" * 40_000}
    return properties.encode({"delivery_mode": 2, "headers": headers, "message_id": str(offset)})


# -- the index's own files -------------------------------------------------------------------------


def uploaded(rig: Indexed) -> None:
    """The index's finished files are in the store, too."""
    indexed(rig, MANY)
    rig.until(lambda: rig.states()["compacted"] == 0)
    assert rig.states()["uploaded"] >= 3


def test_finished_files_go_into_the_store_and_are_searched_there(rig: Indexed) -> None:
    uploaded(rig)
    assert len(rig.index_objects()) == rig.states()["uploaded"]
    rig.counted()
    answer = rig.find(3)
    assert [message.offset for message in answer.messages] == [3] and answer.is_complete
    assert answer.fetched == rig.counted("get", "read") == 2, "an array and a block"
    assert rig.find("absent").fetched == rig.counted("get", "read") == 0
    again = rig.again()
    try:
        again.connect()
        again.catch_up()
        again.check()
        assert again.states()["uploaded"] == rig.states()["uploaded"]
        assert again.index_objects() == rig.index_objects()
    finally:
        again.kill()


def test_no_more_files_are_read_than_the_newest_results_need(rig: Indexed) -> None:
    uploaded(rig)
    rig.counted()
    answer = rig.find(1, "header:shared", most=1)
    assert len(answer.messages) == 1 and answer.left > 0
    assert rig.counted("read") <= 4, "four are asked for ahead"


def test_so_much_of_the_index_stays_on_this_disk_as_the_setting_says(tmp_path: Path) -> None:
    rig = Indexed(tmp_path / "data", tmp_path / "store", stream_index_local_max=1 << 30).start()
    try:
        indexed(rig, MANY)
        assert rig.states()["uploaded"] == 0 and rig.states()["compacted"] >= 3
    finally:
        rig.kill()


def test_without_tiered_streams_an_index_stays_on_this_disk(rig: Indexed) -> None:
    rig.connect()
    arguments = {"x-queue-type": "stream", "x-stream-index": "message_id"}
    rig.vhost.declare_queue(NAME, durable=True, arguments=arguments)
    rig.publish(MANY)
    rig.catch_up()
    for _ in range(5):
        rig.second()
    assert rig.states()["uploaded"] == 0 and rig.index_objects() == set()


def test_uploads_of_an_index_wait_for_a_store_that_fails(rig: Indexed) -> None:
    rig.declare(stream_index="message_id")
    rig.answer = away
    rig.connect()
    rig.publish(MANY)
    rig.catch_up()
    for _ in range(5):
        rig.second()
    assert rig.states()["uploaded"] == 0
    assert rig.offsets_of(3) == [3]
    rig.answer = lambda _: None
    rig.until(lambda: rig.states()["compacted"] == 0)
    assert rig.states()["uploaded"] > 0
    rig.check()


def test_an_object_of_the_index_that_is_not_what_it_was_is_told(rig: Indexed) -> None:
    uploaded(rig)
    for name in rig.index_objects():
        path = rig.store / name
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    answer = rig.find(3)
    assert answer.messages == [] and not answer.is_complete
    assert "not the one that was put there" in answer.reasons[0]
    for name in rig.index_objects():
        (rig.store / name).unlink()
    answer = rig.find(3)
    assert not answer.is_complete and "missing" in answer.reasons[0]


def test_objects_of_expired_files_go_after_the_time_of_grace(tmp_path: Path) -> None:
    rig = Indexed(tmp_path / "data", tmp_path / "store", tier_grace=0.0).start()
    try:
        uploaded(rig)
        rig.stream.store.retain(3, -1, -1)
        rig.index._expiry = 0.0
        rig.until(lambda: rig.states()["uploaded"] == 0 and not rig.index_objects())
        rig.check(every=1)
    finally:
        rig.kill()


def test_a_deleted_vhost_leaves_no_object_of_its_index(tmp_path: Path) -> None:
    rig = Indexed(tmp_path / "data", tmp_path / "store", tier_grace=0.0).start()
    try:
        uploaded(rig)
        queue, directory = rig.stream, Path(rig.vhost.directory)
        rig.vhost.delete_queue(NAME)
        for feature in rig.features:
            feature.queue_deleted(queue, 0)
        vhosts = dict(rig.definitions.vhosts)
        rig.definitions.vhosts.clear()
        rig.until(lambda: not rig.objects())
        assert not (directory / "index").exists()
        rig.definitions.vhosts.update(vhosts)
    finally:
        rig.kill()


# -- kills -----------------------------------------------------------------------------------------


class Killed(Exception):
    """The broker ends here."""


@pytest.mark.parametrize("when", ["before", "after", "noted"])
def test_a_kill_around_an_upload_of_the_index_leaves_no_object_without_a_file(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Indexed(tmp_path / "data", tmp_path / "store", tier_grace=0.0).start()

    def end(task: Task) -> Answer | None:
        if task.kind == "put_file":
            if when == "after":
                rig.work.carry_out(task)
            raise Killed
        return None

    def die(*_: object) -> None:
        raise Killed

    if when == "noted":
        monkeypatch.setattr(Uploads, "_is_made", die)
    else:
        rig.answer = end
    with pytest.raises(Killed):
        uploaded(rig)
    assert len(rig.index_objects()) == (0 if when == "before" else 1)
    rig.kill()
    monkeypatch.undo()
    again = rig.again(tier_grace=0.0)
    try:
        again.connect()
        again.catch_up()
        again.until(lambda: again.states()["compacted"] == 0)
        again.until(lambda: len(again.index_objects()) == again.states()["uploaded"])
        again.check()
    finally:
        again.kill()


def test_the_copy_of_a_backup_searches_in_the_store_and_changes_nothing_there(
    rig: Indexed, tmp_path: Path
) -> None:
    uploaded(rig)
    place, store = rig.copied(tmp_path / "copy")
    (place / "appliance_id").unlink()
    before = {name: (rig.store / name).stat().st_mtime_ns for name in rig.objects()}
    copy = Indexed(place, rig.store.parent, tier_grace=0.0).start()
    try:
        copy.connect()
        copy.catch_up()
        copy.check()
        copy.publish(MANY)
        copy.stream.store.retain(3, -1, -1)
        copy.index._expiry = 0.0
        for _ in range(5):
            copy.second()
        after = {name: (rig.store / name).stat().st_mtime_ns for name in rig.objects()}
        assert after == before
        owner = json.loads((rig.store / "owner").read_text())["appliance"]
        assert owner == rig.tiers.carrier.appliance != copy.tiers.carrier.appliance
    finally:
        copy.kill()
    assert store.exists()
    rig.check()
