# cython: language_level=3
"""What a method of AMQP is: a row of `broker.wire.methods`."""

cimport cython

# The kinds of fields, by the letters of `Method.kinds`.
cdef dict KINDS = {
    "octet": b"1",
    "short": b"2",
    "long": b"4",
    "longlong": b"8",
    "timestamp": b"8",
    "bit": b"b",
    "shortstr": b"s",
    "longstr": b"S",
    "table": b"F",
}


@cython.final
cdef class Method:
    """`fields` are (name, kind) pairs; a name that begins with `_` is reserved."""

    def __cinit__(
        self, int class_id, int method_id, str name, tuple fields not None, bint from_client
    ):
        self.class_id = class_id
        self.method_id = method_id
        self.name = name
        self.fields = fields
        self.from_client = from_client
        self.index = <uint32_t> class_id << 16 | <uint32_t> method_id
        self.kinds = b"".join([KINDS[kind] for _name, kind in fields])
        self.names = tuple([None if one[0] == "_" else one for one, _kind in fields])
