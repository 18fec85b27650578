"""Lists of files, which a file leaves at the latest when it is freed: a list that had one that is
freed would write into memory of others."""

from broker.store.files.operation cimport File, FileList, FilePlace


cdef inline void list_file(FileList* files, FilePlace* place, File* file) noexcept:
    """Puts a file at the end of the list; `place` is its place in lists of this kind, and is in
    none."""
    place.file = file
    place.files = files
    place.before = files.last
    place.behind = NULL
    if files.last != NULL:
        files.last.behind = place
    else:
        files.first = place
    files.last = place
    files.count += 1


cdef inline void unlist(FilePlace* place) noexcept:
    """Takes a file out of the list that it is in, if any."""
    cdef FileList* files = place.files
    if files == NULL:
        return
    if place.behind != NULL:
        place.behind.before = place.before
    else:
        files.last = place.before
    if place.before != NULL:
        place.before.behind = place.behind
    else:
        files.first = place.behind
    place.files = NULL
    files.count -= 1


cdef inline void unlist_all(FileList* files) noexcept:
    """Takes all files out."""
    while files.first != NULL:
        unlist(files.first)


cdef inline bint is_open(File* file) noexcept:
    """Whether it is open, and stays so until `OpenFiles` closes it."""
    return file.fd >= 0 and file.opened.files != NULL
