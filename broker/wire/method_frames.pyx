# cython: language_level=3
"""Methods as whole frames, by the rows of `broker.wire.methods`."""

from broker.wire.argument_lists cimport encode_arguments, frame

from broker.wire.methods import BY_NAME

cdef enum:
    METHOD = 1                   # the type of their frames (AMQP 0-9-1 section 2.3.5)

# Not whole frames: a thousand of them, made at different times, would each hold a page of the
# objects in memory that came and went around it.
cdef dict _bare = {}


def method_frame(int channel, str name, **arguments):
    """A whole frame. Raises ValueError for a string that is too long."""
    if not arguments:
        return bare_frame(channel, name)
    return frame(METHOD, channel, encode_arguments(BY_NAME[name], arguments))


cpdef bytes bare_frame(int channel, str name):
    """A method without arguments, or with their defaults only: most answers are one."""
    cdef bytes payload = _bare.get(name)
    if payload is None:
        payload = _bare[name] = encode_arguments(BY_NAME[name], {})
    return frame(METHOD, channel, payload)
