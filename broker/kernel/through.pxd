cpdef list long_list()
