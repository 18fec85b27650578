# cython: language_level=3
"""What a binding is. An exchange may have a hundred thousand."""

cimport cython


@cython.final
@cython.no_gc
cdef class Binding:
    """One binding. `destination_type` is `queue` or `exchange`.

    Two are equal that AMQP does not tell apart: between the same ends, with the same routing key
    and the same arguments. So a binding is its own key where bindings are looked up.
    """

    cdef readonly object source
    cdef readonly object destination
    cdef readonly object destination_type
    cdef readonly object routing_key
    cdef readonly dict arguments
    cdef readonly str arguments_text   # tables cannot be hashed; empty without arguments
    cdef Py_hash_t hash

    def __cinit__(
        self, source, destination, destination_type, routing_key, dict arguments not None
    ):
        self.source = source
        self.destination = destination
        self.destination_type = destination_type
        self.routing_key = routing_key
        self.arguments = arguments
        self.arguments_text = repr(sorted(arguments.items())) if arguments else ""
        self.hash = hash(
            (source, destination, destination_type, routing_key, self.arguments_text))

    def facts(self) -> dict:
        """By their names: what it was made of, in the order of definitions."""
        return {
            "source": self.source,
            "destination": self.destination,
            "destination_type": self.destination_type,
            "routing_key": self.routing_key,
            "arguments": self.arguments,
        }

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        cdef Binding that
        if self is other:
            return True
        if type(other) is not Binding:
            return NotImplemented
        that = <Binding> other
        return (
            self.routing_key == that.routing_key
            and self.destination == that.destination
            and self.source == that.source
            and self.destination_type == that.destination_type
            and self.arguments_text == that.arguments_text
        )

    def __repr__(self):
        ends = f"{self.source!r}, {self.destination!r}, {self.destination_type!r}"
        return f"Binding({ends}, {self.routing_key!r}, {self.arguments!r})"
