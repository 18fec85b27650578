"""Records a second that the data source for Spark reads from one segment after the other, on one
core: `python -m tests.bench.messages`. Spark's own part is not in it.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from pathlib import Path

from broker.kernel.checksum import crc32c, seed_of
from management.reports.segments import Limits, Segment, rows

RECORDS, SEGMENTS, ROUNDS = 60_000, 8, 5
BODY = b"x" * 100
HEAD = struct.Struct("<qBBBBI")


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        segments = [_segment(Path(name), number) for number in range(1, SEGMENTS + 1)]
        best = 0.0
        for _ in range(ROUNDS):
            began = time.process_time()
            count = sum(batch.num_rows for batch in rows(segments, Limits()))
            assert count == RECORDS * SEGMENTS
            best = max(best, count / (time.process_time() - began))
        print(f"{count:,} messages of {len(BODY)} bytes in {SEGMENTS} segments:"
              f" {best:,.0f} records a second of CPU, the best of {ROUNDS}")  # fmt: skip
    return 0


def _segment(directory: Path, number: int) -> Segment:
    data = bytearray(struct.pack("<II", 0x5352564C, 1))
    key, properties = b"orders", b"\x10\x00\x02"
    for record in range(RECORDS):
        rest = HEAD.pack(1_795_255_200_000 + record, 8, 0, len(key), 0, len(BODY))
        rest += key + properties + BODY
        check = crc32c(rest, seed_of(7, number, len(data)))
        data += struct.pack("<II", len(rest) + 4, check) + rest
    (directory / f"msgs.{number:010}").write_bytes(data)
    return Segment("/", "orders", "classic", str(directory), 7, 1, number, len(data), False)


if __name__ == "__main__":
    sys.exit(main())
