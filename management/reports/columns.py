"""The columns of the usage tables, and how two rows of the same object become one.

They are those of the broker's own table of the feed (`broker.features.usage.records`): a column
that is added there appears here, and FEED_HELD is HELD here. A number that a line or a file leaves
out is zero.
"""

from __future__ import annotations

from broker.features.usage import records

# Raised when days and months have to be built anew from the hours to be right.
TABLES_VERSION = 1

# The texts that name an object, in the order by which files are sorted; empty where a kind of
# object has no such text.
IDENTITY = (
    "kind",
    *dict.fromkeys(name for names in records.IDENTITY.values() for name in names),
)

# When a row's object was first and last written of, UTC milliseconds, and how many lines made it.
SPAN = {"since": "min", "until": "max", "lines": "sum"}

# Byte milliseconds of a month fit into 64 bits up to 3.4 GB only: the tables hold byte seconds,
# rounded down for each hour and object.
FEED_HELD = "message_bytes_ms"
HELD = "message_bytes_s"
HELD_DIVISOR = 1000

NUMBERS = {HELD if name == FEED_HELD else name: rule for name, rule in records.MERGE.items()}

# All that is merged, in the order of the columns: `sum`, `max`, `min`, or `last`, the number of the
# row with the greatest `until`.
MERGED = {**SPAN, **NUMBERS}

# Kinds whose hours are not folded into days and months: there is no end of new ones, and `user`
# rows hold the same sums.
HOURS_ONLY = ("connection",)
