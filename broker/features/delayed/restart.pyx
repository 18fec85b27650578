# cython: language_level=3
"""Finds the delayed messages of the last run again.

The log's own recovery says which records live. The runs of the timing index say when most of them
are due; a segment of which some live record is in no sound run is read, and those records enter the
index anew by the due time they carry.
"""

import logging

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from broker.features.delayed.entry cimport (
    ENTRY_BYTES, Entry, RUN_HEADER_BYTES, RUN_MAGIC, RUN_VERSION, RunHeader, entry_check,
    header_check,
)
from broker.features.delayed.run cimport BUFFERED, Run
from broker.features.delayed.schedule cimport Schedule
from broker.store.files import disk
from broker.store.files.disk cimport file_new
from broker.store.files.record cimport HEADER_BYTES, RecordHead, record_check, record_fits
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.segments cimport Segment

log = logging.getLogger("leveret.delayed")


cdef bint is_live(QueueStore store, uint32_t number, uint32_t position) noexcept:
    """Whether a record of the last run is neither settled nor gone with its segment, or with the
    end of it that was cut."""
    cdef Segment* segment = store.segments.find(number)
    cdef uint32_t low = 0
    cdef uint32_t high, middle
    if segment == NULL or position >= segment.length:
        return False
    high = segment.skip_count
    while low < high:
        middle = (low + high) // 2
        if segment.skips[middle].position <= position:
            low = middle + 1
        else:
            high = middle
    # Settled runs may be one stretch.
    return low == 0 or not (position - segment.skips[low - 1].position
                            < segment.skips[low - 1].length)


cdef Run read_run(Schedule schedule, str path, uint32_t number):
    """The run with all its entries in memory, or None if the file is not sound."""
    cdef bytes data = disk.read(path)
    cdef const uint8_t* start = data
    cdef const RunHeader* header = <const RunHeader*> start
    cdef const Entry* entries = <const Entry*> (start + RUN_HEADER_BYTES)
    cdef Run run
    cdef uint32_t i
    if (len(data) < RUN_HEADER_BYTES or header.magic != RUN_MAGIC
            or header.check != header_check(header) or header.number != number
            or header.incarnation != schedule.incarnation):
        return None
    if header.version != RUN_VERSION:
        raise ValueError(
            f"{path} has format version {header.version}; this program reads {RUN_VERSION}")
    if <size_t> len(data) < RUN_HEADER_BYTES + <size_t> header.count * ENTRY_BYTES:
        return None
    for i in range(header.count):
        if entries[i].check != entry_check(&entries[i], schedule.incarnation, number):
            return None
    run = Run(number, header.count)
    run.array = <Entry*> malloc(<size_t> header.count * ENTRY_BYTES + 1)
    if run.array == NULL:
        raise MemoryError("no memory for the timing index")
    memcpy(run.array, entries, <size_t> header.count * ENTRY_BYTES)
    run.file = file_new(path)
    run.on_disk = True
    return run


cdef bint is_short(bytes data):
    """Whether a file that is no sound run is the beginning of one."""
    cdef const uint8_t* start = data
    cdef const RunHeader* header = <const RunHeader*> start
    if len(data) < RUN_HEADER_BYTES:
        return True
    return (header.magic == RUN_MAGIC and header.check == header_check(header)
            and <size_t> len(data) < RUN_HEADER_BYTES + <size_t> header.count * ENTRY_BYTES)


cdef int let_go(Run run) except -1:
    """Keeps of a run what is needed next; the rest stays in its file."""
    cdef uint32_t count = run.count - run.at
    if count > BUFFERED:
        count = BUFFERED
    run.buffer = <Entry*> malloc(BUFFERED * ENTRY_BYTES)
    if run.buffer == NULL:
        raise MemoryError("no memory for the timing index")
    memcpy(run.buffer, run.array + run.at, <size_t> count * ENTRY_BYTES)
    run.buffer_from = run.at
    run.buffer_count = count
    run.drop_array()
    return 0


def restore(QueueStore store, Schedule schedule) -> list:
    """Fills an empty index for a recovered log. Returns sentences about what was wrong."""
    cdef dict indexed = {}
    cdef list problems = []
    cdef list runs
    cdef set wanted
    schedule.directory_made = disk.exists(schedule.directory)
    runs = live_runs(store, schedule, indexed, problems)
    wanted = incomplete_segments(store, indexed)
    if wanted:
        known = known_records(schedule, runs, wanted, problems)
        if known is None:
            # Nothing has been entered yet.
            return problems + restore(store, schedule)
        rescan_all(store, schedule, known, problems)
    for run, _ in runs:
        schedule.enter(run)
    return problems


cdef list live_runs(QueueStore store, Schedule schedule, dict indexed, list problems):
    """(run, path) of each run with live messages; the other files are removed. `indexed` gets the
    number of live messages in runs by their segment."""
    cdef Run run
    cdef list runs = []
    for name in disk.listdir(schedule.directory):
        if not (name.startswith("due.") and name[4:].isdigit()):
            continue
        number = int(name[4:])
        path = f"{schedule.directory}/{name}"
        schedule.next_number = max(schedule.next_number, number + 1)
        run = sound_run(schedule, path, number, problems)
        if run is not None:
            run.at = first_live(store, run, indexed)
        if run is None or run.at == run.count:
            disk.unlink(path)
        else:
            let_go(run)
            runs.append((run, path))
    return runs


cdef Run sound_run(Schedule schedule, str path, number, list problems):
    """The run in a file; None if it is not sound, which is reported."""
    cdef Run run
    try:
        run = read_run(schedule, path, number)
        short = run is None and is_short(disk.read(path))
    except OSError as error:
        problems.append(
            f"{path} cannot be read: {error.strerror}; its messages are scheduled anew")
        return None
    if short:
        # A kill leaves such a run, written just then. Nothing depends on it.
        log.info("%s was not written to its end; its messages are scheduled anew", path)
    elif run is None:
        problems.append(f"{path} is damaged; its messages are scheduled anew")
    return run


cdef uint32_t first_live(QueueStore store, Run run, dict indexed) except? 0:
    """The index of the first live message of a run, or their count. Adds to `indexed`."""
    cdef uint32_t i
    cdef uint32_t first = run.count
    cdef uint32_t last_number = 0
    cdef uint32_t tally = 0
    for i in range(run.count):
        if run.array[i].segment >= store.segments.next_number:
            # Its records are all settled: the number must not be given again.
            store.segments.next_number = run.array[i].segment + 1
        if is_live(store, run.array[i].segment, run.array[i].position):
            first = min(first, i)
            if run.array[i].segment != last_number:
                indexed[last_number] = indexed.get(last_number, 0) + tally
                last_number = run.array[i].segment
                tally = 0
            tally += 1
    indexed[last_number] = indexed.get(last_number, 0) + tally
    return first


cdef set incomplete_segments(QueueStore store, dict indexed):
    """The numbers of the segments with live messages that are in no run."""
    cdef Segment* segment = store.segments.head
    cdef set wanted = set()
    while segment != NULL:
        if indexed.get(segment.number, 0) != segment.count - segment.settled:
            wanted.add(segment.number)
        segment = segment.next
    return wanted


cdef dict known_records(Schedule schedule, list runs, set wanted, list problems):
    """Segment -> the positions of its records that are in runs. None if a run cannot be read
    again; it is removed."""
    cdef Run run, whole
    cdef dict known = {number: set() for number in wanted}
    for run, path in runs:
        try:
            whole = read_run(schedule, path, run.number)
            why = "its content has changed"
        except OSError as error:
            whole, why = None, error.strerror
        if whole is None:
            problems.append(f"{path} cannot be read again: {why}; its messages are scheduled anew")
            disk.unlink(path)
            return None
        note_known(whole, known)
    return known


cdef int rescan_all(QueueStore store, Schedule schedule, dict known, list problems) except -1:
    """Enters the live records of these segments that are in no run."""
    cdef Segment* segment = store.segments.head
    while segment != NULL:
        if segment.number in known:
            try:
                rescan(store, segment, schedule, known[segment.number])
            except OSError as error:
                problems.append(
                    f"{store.directory}/msgs.{segment.number:010d} cannot be read: "
                    f"{error.strerror}; those of its messages that are in no run wait for a "
                    "start that can")
        segment = segment.next
    return 0


cdef int note_known(Run run, dict known) except -1:
    """Notes which records of the segments in question are in this run."""
    cdef uint32_t i
    for i in range(run.count):
        positions = known.get(run.array[i].segment)
        if positions is not None:
            positions.add(run.array[i].position)
    return 0


cdef int rescan(QueueStore store, Segment* segment, Schedule schedule, set known) except -1:
    """Enters the live records of a segment that are in no run."""
    cdef bytes data = disk.read(f"{store.directory}/msgs.{segment.number:010d}")
    cdef const uint8_t* start = data
    cdef const RecordHead* head
    cdef size_t at = HEADER_BYTES
    cdef size_t length = len(data)
    cdef Entry entry
    while at < length and at < segment.length:
        head = <const RecordHead*> (start + at)
        if not record_fits(start + at, length - at) or head.check != record_check(
                start + at, store.folder.incarnation, segment.number, <uint32_t> at):
            at += 1
            continue
        if at not in known and is_live(store, segment.number, <uint32_t> at):
            entry.due = head.timestamp
            entry.segment = segment.number
            entry.position = <uint32_t> at
            entry.length = head.length + 4
            entry.body_length = head.body_length
            entry.check = 0
            schedule.push(&entry)
        at += head.length + 4
    return 0
