# cython: language_level=3
"""The argument lists of methods as bytes (AMQP 0-9-1 section 4.2.5), by the rows of
`broker.wire.methods`."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from broker.fields.codec cimport Reader
from broker.kernel.buffer cimport Buffer, store16, store32, store64
from broker.wire.method cimport Method

from broker.fields.codec import Malformed, encode_table, octets


cpdef dict decode_arguments(Method method, bytes payload):
    """The arguments behind class and method id, by name, without the reserved ones. Raises
    Malformed (501)."""
    cdef Reader reader = Reader(payload, 4)
    cdef dict arguments = {}
    cdef bytes kinds = method.kinds
    cdef tuple names = method.names
    cdef str name
    cdef object value
    cdef uint8_t bits = 0
    cdef int bit = 8
    cdef uint8_t kind
    cdef Py_ssize_t place
    for place in range(len(kinds)):
        kind = kinds[place]
        name = names[place]
        if kind == b"b":
            if bit == 8:
                bits = <uint8_t> reader.number(1)
                bit = 0
            value = bits >> bit & 1 != 0
            bit += 1
        else:
            bit = 8
            if kind == b"s":
                if name is None:
                    reader.skip(<Py_ssize_t> reader.number(1))
                    continue
                value = reader.short_string()
            elif kind == b"F":
                value = reader.table()
            elif kind == b"S":
                value = reader.long_string()
            else:
                value = reader.number(kind - 48)
        if name is not None:
            arguments[name] = value
    if reader.at != reader.end:
        raise Malformed(
            f"cannot decode: {reader.end - reader.at} bytes follow the arguments of {method.name}"
        )
    return arguments


cpdef bytes encode_arguments(Method method, dict arguments):
    """Class id, method id and arguments: the payload of a method frame. Raises ValueError for a
    string that is too long."""
    cdef Buffer out = Buffer()
    cdef bytes kinds = method.kinds
    cdef tuple names = method.names
    cdef bytes data
    cdef object value
    cdef int bit = -1
    cdef uint8_t kind
    cdef Py_ssize_t place
    store32(out.room(4), method.index)
    out.length = 4
    for place in range(len(kinds)):
        kind = kinds[place]
        value = arguments.get(names[place])
        if kind == b"b":
            bit = bit + 1 & 7
            if bit == 0:
                out.room(1)[0] = 0
                out.length += 1
            if value:
                out.data[out.length - 1] |= 1 << bit
            continue
        bit = -1
        if kind == b"s":
            data = octets(value or "")
            if len(data) > 255:
                raise ValueError(f"{names[place]} of {method.name} is longer than 255 bytes")
            out.room(1)[0] = <uint8_t> len(data)
            out.length += 1
        elif kind == b"F":
            data = encode_table(value or {})
        elif kind == b"S":
            data = value if isinstance(value, bytes) else octets(value or "")
            store32(out.room(4), len(data))
            out.length += 4
        else:
            put_number(out, int(value or 0), kind - 48)
            continue
        out.add(<char*> data, len(data))
    return PyBytes_FromStringAndSize(<char*> out.data, out.length)


cdef int put_number(Buffer out, value, int size) except -1:
    cdef uint64_t number = value
    cdef uint8_t* p = out.room(size)
    if size < 8 and number >> 8 * size:
        raise OverflowError(f"{value} does not fit {size} octets")
    if size == 1:
        p[0] = <uint8_t> number
    elif size == 2:
        store16(p, number)
    elif size == 4:
        store32(p, number)
    else:
        store64(p, number)
    out.length += size
    return 0


cpdef bytes frame(uint8_t kind, int channel, bytes payload):
    """A whole frame (section 2.3.5)."""
    cdef Py_ssize_t size = len(payload)
    cdef bytes whole = PyBytes_FromStringAndSize(NULL, size + 8)
    cdef uint8_t* p = <uint8_t*> <char*> whole
    p[0] = kind
    store16(p + 1, channel)
    store32(p + 3, size)
    memcpy(p + 7, <char*> payload, size)
    p[7 + size] = 0xCE
    return whole
