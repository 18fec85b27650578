from libc.stdint cimport uint8_t

from broker.wire.method cimport Method


cpdef dict decode_arguments(Method method, bytes payload)
cpdef bytes encode_arguments(Method method, dict arguments)
cpdef bytes frame(uint8_t kind, int channel, bytes payload)
