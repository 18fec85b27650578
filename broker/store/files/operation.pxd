# An operation on a file, as the loop fills it in and a thread carries it out (`disk.run_op`).
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    OP_MKDIR = 0
    OP_OPEN = 1              # opens for reading and writing, creates if missing
    OP_WRITE = 2
    OP_WRITE_RECORDS = 3     # seals each record with its seeded CRC, then writes
    OP_WRITE_ACKS = 4        # seals each acks entry, then writes
    OP_SYNC = 5              # fdatasync
    OP_SYNC_DIRECTORY = 6
    OP_SYNC_FILE_SYSTEM = 7  # the file is a directory that stays open
    OP_CLOSE = 8
    OP_UNLINK = 9
    OP_READ = 10
    OP_RMDIR = 11
    OP_PUNCH = 12            # holes for what the acks file beside `path` says is settled
    OP_WRITE_FILE = 13       # a whole small file, not synced
    OP_WRITE_BODIES = 14     # seals each shared body's record, then writes
    OP_RENAME = 15           # the file named by `data`, with a zero behind it, to `path`
    OP_TRUNCATE = 16         # gives back the space ahead of the records
    OP_WRITE_CONTENT = 17    # into a file without a name in the directory `path`, made if needed
    # 18 is no operation of a thread (observer.KINDS).


cdef enum:
    BLOCK_BYTES = 4096       # what direct I/O writes is aligned to it


cdef struct FilePlace:       # of a file in a list (`broker.store.files.file_list`)
    File* file
    FileList* files          # NULL: in none
    FilePlace* before
    FilePlace* behind


cdef struct FileList:
    FilePlace* first
    FilePlace* last
    uint64_t count


cdef struct File:
    # -1 = not open. Written by the thread that opens, read by the loop when not busy.
    int fd
    bint dirty               # bytes written since the last sync
    bint lazy                # its sync may wait for the next tick
    bint short_of_space      # records for it were postponed in this round
    bint gone                # all in it is settled: what is still to be written need not be
    uint32_t busy            # operations in flight
    char* path
    FilePlace opened         # in the list of open files
    FilePlace unsynced       # in one of those with unsynced bytes
    # Of the thread that writes, see `broker.store.files.space_ahead`; while a flight has the file,
    # of the one who takes that back (`async_io`).
    uint64_t written         # end of the records
    uint64_t ahead           # end of the zeros behind them; 0: there are none
    bint is_unsynced         # a write of the thread is not synced: all of the file has to be
    bint is_reserved         # of these, some are space that was never written
    uint32_t rounds
    int64_t rounds_since     # monotonic ns
    uint64_t usual_length    # of the longer ones of the last rounds
    int direct_fd            # for direct I/O; -1: not open
    bint refuses_direct      # a write of it was refused: it is not opened for that again
    uint8_t* block           # the block of the file in which `written` lies, if `direct_fd` is open
    bint is_block_old        # it is to be read first
    File* before_ahead
    File* behind_ahead


cdef struct Op:
    int kind
    int error                # errno, 0 = done
    File* file
    char* path               # owned by the operation; freed when the round is
    uint8_t* data
    size_t length
    uint64_t offset
    uint64_t incarnation     # seed of OP_WRITE_RECORDS and OP_WRITE_ACKS
    uint32_t segment
    bint owns_data
    bint can_wait            # its data is kept, and confirms wait, while the disk is full
    const uint8_t* body      # OP_WRITE_RECORDS of one record: its large body, which follows `data`
    size_t body_length
    bint is_body             # OP_READ of a shared body's record, which is checked: `is_sound`
    bint is_record           # the same of a whole record of a segment
    bint is_sound
    uint64_t extend_by       # OP_WRITE_RECORDS: zeros that the file may get at a time, and
    uint64_t extend_to       # up to where
    uint32_t direct_files    # how many files may be open for direct I/O; 0: this one must not be
    bint is_read_back        # OP_WRITE_RECORDS: consumers will read it from the file
    bint is_written          # by a flight that could not write all, and need not be written again
    size_t done              # bytes read or written
