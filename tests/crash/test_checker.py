"""The checker against itself: journals with one planted fault each, and every fault is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.client import Delivery
from tests.crash import bodies
from tests.crash.checker import FAULTS, Checker
from tests.crash.journal import Journal, Kind, Record, read

Journals = tuple[list[Record], list[list[Record]]]


def published(count: int = 6, queue_mask: int = 1, confirmed: int | None = None) -> list[Record]:
    """A publisher's journal: `count` attempts, the first `confirmed` of them confirmed."""
    records = [Record(Kind.ATTEMPTED, 0, sequence, queue_mask) for sequence in range(count)]
    wanted = count if confirmed is None else confirmed
    return records + [Record(Kind.CONFIRMED, 0, sequence) for sequence in range(wanted)]


def consumed(sequences: list[int], redelivered: bool = False, fenced: bool = True) -> list[Record]:
    """A consumer's journal on queue 0: each delivered and acknowledged, a fence at the end."""
    records = [Record(Kind.SESSION)]
    for sequence in sequences:
        records.append(Record(Kind.DELIVERED, 0, sequence, 0, int(redelivered)))
        records.append(Record(Kind.ACK_SENT, 0, sequence, 0))
    return [*records, Record(Kind.FENCED)] if fenced else records


def judge(journals: Journals) -> dict[str, int]:
    """The faults found, without those that are zero."""
    checker = Checker()
    checker.publisher_journal(journals[0])
    for journal in journals[1]:
        checker.consumer_journal(journal)
    return {name: count for name, count in checker.drained().faults.items() if count}


def lost() -> Journals:
    return published(), [consumed([0, 1, 2, 4, 5])]


def lost_at_the_tail() -> Journals:
    return published(), [consumed([0, 1, 2, 3, 4])]


def lost_in_one_of_two_queues() -> Journals:
    return published(queue_mask=0b11), [consumed([0, 1, 2, 3, 4, 5])]


def phantom() -> Journals:
    return published(), [consumed([0, 1, 2, 3, 4, 5, 6])]


def phantom_in_a_queue_it_was_not_routed_to() -> Journals:
    stray = [Record(Kind.SESSION, queue=3), Record(Kind.DELIVERED, 0, 2, 3)]
    return published(), [consumed([0, 1, 2, 3, 4, 5]), stray]


def phantom_of_another_run() -> Journals:
    return published(), [consumed([0, 1, 2, 3, 4, 5]), [Record(Kind.STRANGER)]]


def altered() -> Journals:
    journal = consumed([0, 1, 2, 3, 4, 5])
    journal[5] = Record(Kind.DELIVERED, 0, 2, 0, 2)
    return published(), [journal]


def unflagged() -> Journals:
    return published(), [consumed([0, 1, 2], fenced=False), consumed([2, 3, 4, 5])]


def resurrected() -> Journals:
    return published(), [
        consumed([0, 1, 2]),
        consumed([2], redelivered=True),
        consumed([3, 4, 5]),
    ]


def disordered_in_one_session() -> Journals:
    return published(), [consumed([0, 1, 3, 2, 4, 5])]


def disordered_across_sessions() -> Journals:
    return published(), [consumed([0, 1, 2, 4]), consumed([3, 5])]


def disordered_requeued_at_the_tail() -> Journals:
    returned = [Record(Kind.SESSION)]
    for sequence, flag in ((3, 0), (2, 1)):
        returned.append(Record(Kind.DELIVERED, 0, sequence, 0, flag))
        returned.append(Record(Kind.ACK_SENT, 0, sequence, 0))
    return published(5), [consumed([0, 1, 2], fenced=False), returned, consumed([4])]


def doubled() -> Journals:
    journal = consumed([0, 1, 2, 3, 4, 5], fenced=False)
    journal.insert(2, Record(Kind.DELIVERED, 0, 0, 0, 1))
    return published(), [journal]


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (lost, "lost"),
        (lost_at_the_tail, "lost"),
        (lost_in_one_of_two_queues, "lost"),
        (phantom, "phantom"),
        (phantom_in_a_queue_it_was_not_routed_to, "phantom"),
        (phantom_of_another_run, "phantom"),
        (altered, "altered"),
        (unflagged, "unflagged"),
        (resurrected, "resurrected"),
        (disordered_in_one_session, "disordered"),
        (disordered_across_sessions, "disordered"),
        (disordered_requeued_at_the_tail, "disordered"),
        (doubled, "doubled"),
    ],
)
def test_it_finds_a_planted_fault(plant: Callable[[], Journals], fault: str) -> None:
    found = judge(plant())
    assert fault in found
    if fault == "lost" and plant is lost_in_one_of_two_queues:
        assert found == {"lost": 6}
    else:
        assert found == {fault: 1}


def test_it_finds_a_depth_that_was_told_wrong() -> None:
    checker = Checker()
    checker.depth(0, told=5, drained=4)
    assert checker.verdict.faults["miscounted"] == 1


def test_it_finds_a_traceback_in_the_log() -> None:
    checker = Checker()
    checker.log("info broker: listening\\nerror broker: a timer failed\\x0aTraceback (most recent")
    assert checker.verdict.faults["broken"] == 1


def test_it_finds_nothing_in_a_run_without_faults() -> None:
    assert judge((published(), [consumed([0, 1, 2, 3, 4, 5])])) == {}


def test_it_allows_a_message_that_was_delivered_but_never_confirmed() -> None:
    checker = Checker()
    checker.publisher_journal(published(confirmed=4))
    checker.consumer_journal(consumed([0, 1, 2, 3, 4]))
    assert checker.drained().clean
    assert checker.verdict.recovered == 1


def test_it_allows_a_flagged_redelivery_of_what_was_not_known_to_be_acknowledged() -> None:
    again = consumed([1, 2], redelivered=True)
    rest = consumed([3, 4, 5])
    assert judge((published(), [consumed([0, 1, 2], fenced=False), again + rest[1:]])) == {}


def given_back(again: list[int], flag: int = 1) -> list[Record]:
    """Four of six messages are delivered and given back; two come, then those of `again`."""
    taken = [Record(Kind.DELIVERED, 0, sequence) for sequence in range(4)]
    returned = [Record(Kind.REQUEUED, 0, sequence) for sequence in range(4)]
    rest = consumed([4, 5])[1:]
    for sequence in again:
        rest.append(Record(Kind.DELIVERED, 0, sequence, 0, flag))
        rest.append(Record(Kind.ACK_SENT, 0, sequence, 0))
    return [Record(Kind.SESSION), *taken, *returned, *rest]


def test_it_allows_what_was_given_back_to_come_again_later() -> None:
    assert judge((published(), [given_back([0, 1, 2, 3])])) == {}


def test_it_finds_what_was_given_back_and_comes_again_without_a_flag() -> None:
    assert judge((published(), [given_back([0, 1, 2, 3], flag=0)]))["unflagged"] == 4


def test_it_finds_a_message_that_was_given_back_and_never_came_again() -> None:
    assert judge((published(), [given_back([0, 1, 3])])) == {"vanished": 1}


def test_it_finds_an_unacknowledged_message_that_did_not_come_back_after_a_crash() -> None:
    cut_off = [Record(Kind.SESSION), *(Record(Kind.DELIVERED, 0, each) for each in range(3))]
    after = consumed([0, 2], redelivered=True) + consumed([3, 4, 5])[1:]
    assert judge((published(), [cut_off, after])) == {"vanished": 1}


def test_it_reports_a_lost_message_once() -> None:
    checker = Checker()
    checker.publisher_journal(published())
    checker.consumer_journal(consumed([0, 1, 2]))
    assert checker.drained().faults["lost"] == 3
    assert checker.drained().faults["lost"] == 3


def test_it_names_every_fault_it_can_find_in_its_text() -> None:
    text = str(Checker().verdict)
    assert all(f"{name} 0" in text for name in FAULTS)


def test_a_journal_file_gives_back_what_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.add(Kind.ATTEMPTED, 3, 1 << 40, 0b101)
    journal.add(Kind.DELIVERED, 3, 1 << 40, 2, 3)
    journal.close()
    assert list(read(tmp_path / "journal")) == [
        Record(Kind.ATTEMPTED, 3, 1 << 40, 0b101),
        Record(Kind.DELIVERED, 3, 1 << 40, 2, 3),
    ]


def test_a_journal_cut_in_the_middle_of_a_record_is_read_to_the_last_whole_one(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal")
    journal.add(Kind.CONFIRMED, 1, 7)
    journal.add(Kind.CONFIRMED, 1, 8)
    journal.close()
    data = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(data[:-3])
    assert list(read(tmp_path / "journal")) == [Record(Kind.CONFIRMED, 1, 7)]


def test_bodies_have_every_size_that_matters_and_tell_themselves_apart() -> None:
    made = [bodies.make(5, 1, sequence) for sequence in range(61 * len(bodies.RARE))]
    sizes = {len(body) for body in made}
    assert sizes >= set(bodies.SMALL) | set(bodies.RARE)
    long = [body for body in made if len(body) >= 16]
    assert len(set(long)) == len(long)
    assert bodies.make(5, 1, 9) == made[9] != bodies.make(6, 1, 9)


def test_a_delivery_whose_properties_were_changed_has_no_message_id() -> None:
    good = Delivery("", 1, False, b"", b"\x10\x80\x02\x051.2.3")
    assert bodies.identity(good.message_id) == (1, 2, 3)
    for properties in (b"\x10\x00\x02", b"\x90\x80\x02\x051.2.3", b"", b"\x10\x80\x02"):
        with pytest.raises(ValueError, match=r".*"):
            bodies.identity(Delivery("", 1, False, b"", properties).message_id)
