# cython: language_level=3
"""Field values and field tables (AMQP 0-9-1 section 4.2.5.5, with the type letters that RabbitMQ
and its clients use).

Integers keep their value, not their width; a value goes out as the narrowest of RabbitMQ's usual
types (`I` below 2**31, else `l`). Wrapper classes keep what Python has no type for, so that
arguments round-trip.
"""

import datetime
import decimal
import struct
from collections.abc import Mapping

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

from broker.kernel.buffer cimport load16, load32, load64

from broker.schema.errors import FrameError
from broker.schema.times import Timestamp
from broker.settings.bounds import NESTING_MAX, TABLE_VALUES_MAX

# A hostile table must not cost more than its bytes: nesting and element counts are bounded.
DEPTH_MAX = NESTING_MAX
ELEMENTS_MAX = TABLE_VALUES_MAX
cdef int DEEPEST = NESTING_MAX
cdef Py_ssize_t MOST = TABLE_VALUES_MAX


class Malformed(FrameError):
    """501: the bytes of a table, a string or an argument list do not add up."""


class Long(int):
    """A 64-bit integer (type l), where clients expect that width whatever the value."""


class Short(int):
    """A 16-bit integer (type s), likewise."""


class Byte(int):
    """A signed or unsigned octet (types b, B)."""


class Float(float):
    """A 32-bit float (type f)."""


class Binary(bytes):
    """Bytes that are not text (type x)."""


def text(bytes data) -> str:
    """A long or short string as text; bytes that are no UTF-8 survive a round trip."""
    return data.decode("utf-8", "surrogateescape")


def octets(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


cdef class Reader:
    """Reads values from bytes in order. Every method raises Malformed when they run out."""

    def __init__(self, bytes data, Py_ssize_t at=0):
        self.data = data
        self.at = at
        self.end = len(data)

    cdef const uint8_t* skip(self, Py_ssize_t count) except NULL:
        """Where the next `count` bytes are; they are taken."""
        cdef const uint8_t* start = <const uint8_t*> <const char*> self.data + self.at
        if count > self.end - self.at:
            raise Malformed("cannot decode: the arguments end too early")
        self.at += count
        return start

    cdef str text_of(self, Py_ssize_t size):
        return PyUnicode_DecodeUTF8(<const char*> self.skip(size), size, "surrogateescape")

    cpdef bytes take(self, Py_ssize_t size):
        return PyBytes_FromStringAndSize(<const char*> self.skip(size), size)

    cdef uint64_t number(self, int size) except? 0xFFFFFFFFFFFFFFFF:
        """An unsigned integer of 1, 2, 4 or 8 octets."""
        cdef const uint8_t* start = self.skip(size)
        if size == 1:
            return start[0]
        if size == 2:
            return load16(start)
        if size == 4:
            return load32(start)
        return load64(start)

    cpdef uint64_t unsigned(self, int size) except? 0xFFFFFFFFFFFFFFFF:
        """The same."""
        return self.number(size)

    cpdef str short_string(self):
        return self.text_of(<Py_ssize_t> self.number(1))

    cpdef bytes long_string(self):
        return self.take(<Py_ssize_t> self.number(4))

    cpdef dict table(self, int depth=0):
        cdef Py_ssize_t size = <Py_ssize_t> self.number(4)
        cdef Py_ssize_t end = self.at + size
        cdef dict table = {}
        cdef str key
        if end > self.end:
            raise Malformed("cannot decode: a table is longer than what holds it")
        while self.at < end:
            key = self.short_string()
            table[key] = self.value(depth + 1)
        if self.at != end:
            raise Malformed("cannot decode: a table's entries do not fill its length")
        return table

    cpdef list array(self, int depth=0):
        cdef Py_ssize_t size = <Py_ssize_t> self.number(4)
        cdef Py_ssize_t end = self.at + size
        cdef list array = []
        if end > self.end:
            raise Malformed("cannot decode: an array is longer than what holds it")
        while self.at < end:
            array.append(self.value(depth + 1))
        if self.at != end:
            raise Malformed("cannot decode: an array's elements do not fill its length")
        return array

    cpdef value(self, int depth):
        cdef uint8_t kind
        if depth > DEEPEST:
            raise Malformed(f"cannot decode: tables are nested deeper than {DEEPEST}")
        self.elements += 1
        if self.elements > MOST:
            raise Malformed(f"cannot decode: more than {MOST} values in one table")
        kind = self.skip(1)[0]
        if kind == b"S":
            return self.text_of(<Py_ssize_t> self.number(4))
        if kind == b"I":
            return <int32_t> self.number(4)
        if kind == b"l" or kind == b"L":
            return <int64_t> self.number(8)
        if kind == b"s" or kind == b"U":
            return <int16_t> self.number(2)
        if kind == b"i":
            return self.number(4)
        if kind == b"u":
            return self.number(2)
        if kind == b"t":
            return self.number(1) != 0
        if kind == b"F":
            return self.table(depth)
        if kind == b"A":
            return self.array(depth)
        if kind == b"V":
            return None
        return self.rare(kind)

    cdef rare(self, uint8_t kind):
        if kind == b"T":
            return Timestamp(self.number(8))
        if kind == b"d":
            return struct.unpack(">d", self.take(8))[0]
        if kind == b"f":
            return Float(struct.unpack(">f", self.take(4))[0])
        if kind == b"b":
            return Byte(<int8_t> self.number(1))
        if kind == b"B":
            return Byte(self.number(1))
        if kind == b"x":
            return Binary(self.long_string())
        if kind == b"D":
            scale = self.number(1)
            return decimal.Decimal(<int32_t> self.number(4)).scaleb(-scale)
        raise Malformed(f"cannot decode: unknown field type {bytes([kind])!r}")


cdef class Writer:
    """Encodes values, within the bounds of `Reader`: what it writes can be read again. Every method
    raises ValueError for what AMQP has no type for and for what goes beyond the bounds."""

    cdef bytes table(self, table, int depth):
        cdef bytes name, body
        cdef list parts = []
        for key, value in table.items():
            name = octets(key)
            if len(name) > 255:
                raise ValueError(f"the table key {key[:40]!r}… is longer than 255 bytes")
            parts.append(bytes([len(name)]) + name + self.value(value, depth + 1))
        body = b"".join(parts)
        return struct.pack(">I", len(body)) + body

    cdef bytes array(self, array, int depth):
        cdef bytes body = b"".join([self.value(each, depth + 1) for each in array])
        return struct.pack(">I", len(body)) + body

    cdef bytes value(self, value, int depth):
        if depth > DEEPEST:
            raise ValueError(f"tables are nested deeper than {DEEPEST}")
        self.elements += 1
        if self.elements > MOST:
            raise ValueError(f"there are more than {MOST} values in one table")
        if value is None:
            return b"V"
        if isinstance(value, bool):
            return b"t\x01" if value else b"t\x00"
        if isinstance(value, Timestamp):
            return b"T" + struct.pack(">Q", value)
        if isinstance(value, Byte):
            if value < 128:
                return b"b" + struct.pack(">b", value)
            return b"B" + struct.pack(">B", value)
        if isinstance(value, Long):
            return b"l" + struct.pack(">q", value)
        if isinstance(value, Short):
            return b"s" + struct.pack(">h", value)
        if isinstance(value, int):
            if -(2**31) <= value < 2**31:
                return b"I" + struct.pack(">i", value)
            if -(2**63) <= value < 2**63:
                return b"l" + struct.pack(">q", value)
            raise ValueError(f"{value} does not fit 64 bits")
        if isinstance(value, Float):
            return b"f" + struct.pack(">f", value)
        if isinstance(value, float):
            return b"d" + struct.pack(">d", value)
        if isinstance(value, str):
            data = octets(value)
            return b"S" + struct.pack(">I", len(data)) + data
        if isinstance(value, bytes):
            return b"x" + struct.pack(">I", len(value)) + value
        if isinstance(value, Mapping):
            return b"F" + self.table(value, depth)
        if isinstance(value, (list, tuple)):
            return b"A" + self.array(value, depth)
        if isinstance(value, decimal.Decimal):
            scale = max(0, -int(value.as_tuple().exponent))
            return b"D" + struct.pack(">Bi", scale, int(value.scaleb(scale)))
        if isinstance(value, datetime.datetime):
            return b"T" + struct.pack(">Q", int(value.timestamp()))
        raise ValueError(f"a value of type {type(value).__name__} has no AMQP type")


def encode_value(value) -> bytes:
    """Type letter and value, as they may stand in a table. Raises ValueError as `Writer` does."""
    return Writer().value(value, 1)


def encode_table(table) -> bytes:
    """A field table with its length in front. Raises ValueError as `Writer` does."""
    return Writer().table(table, 0)
