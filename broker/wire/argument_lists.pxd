from libc.stdint cimport uint8_t


cpdef bytes encode_arguments(method, dict arguments)
cpdef bytes frame(uint8_t kind, int channel, bytes payload)
