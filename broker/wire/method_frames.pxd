cpdef bytes bare_frame(int channel, str name)
