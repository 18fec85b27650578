/* Linux's asynchronous input and output, for which the C library has no functions. */
#ifndef LEVERET_NATIVE_AIO_H
#define LEVERET_NATIVE_AIO_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static inline int native_aio_setup(unsigned most, unsigned long *context) {
    aio_context_t made = 0;
    int error = syscall(SYS_io_setup, most, &made) < 0 ? errno : 0;
    *context = error ? 0 : made;
    return error;
}

/* An operation of which `done` becomes readable when it is over. */
static inline void native_aio_prepare(struct iocb *control, int operation, int fd, int done,
                                      void *mark) {
    memset(control, 0, sizeof *control);
    control->aio_lio_opcode = (uint16_t)operation;
    control->aio_fildes = (uint32_t)fd;
    control->aio_data = (uint64_t)(uintptr_t)mark;
    control->aio_flags = IOCB_FLAG_RESFD;
    control->aio_resfd = (uint32_t)done;
}

/* A write that never waits for anything before it begins: it fails with EAGAIN instead. If it is
   `synced`, it is on the disk when it is over. */
static inline void native_aio_write(struct iocb *control, int fd, int done, const void *data,
                                    size_t length, uint64_t offset, int synced, void *mark) {
    native_aio_prepare(control, IOCB_CMD_PWRITE, fd, done, mark);
    control->aio_buf = (uint64_t)(uintptr_t)data;
    control->aio_nbytes = length;
    control->aio_offset = (int64_t)offset;
    control->aio_rw_flags = RWF_NOWAIT | (synced ? RWF_DSYNC : 0);
}

/* fdatasync. */
static inline void native_aio_sync(struct iocb *control, int fd, int done, void *mark) {
    native_aio_prepare(control, IOCB_CMD_FDSYNC, fd, done, mark);
}

/* Whether the sync of one file has the disk write all that its cache has of any file: so it is
   with file systems of one device, which flush that. */
static inline int native_sync_is_for_all(int fd) {
    struct statfs state;
    if (fstatfs(fd, &state)) return 0;
    return state.f_type == EXT4_SUPER_MAGIC || state.f_type == XFS_SUPER_MAGIC;
}

/* How many of the operations have begun; the others have not, and never will. `error` is why,
   unless all have. */
static inline int native_aio_submit(unsigned long context, int count, struct iocb **controls,
                                    int *error) {
    int begun = 0;
    while (begun < count) {
        long more = syscall(SYS_io_submit, context, (long)(count - begun), controls + begun);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) {
            *error = more < 0 ? errno : EAGAIN;
            break;
        }
        begun += (int)more;
    }
    return begun;
}

/* Those that are over; 0 if there are none. */
static inline int native_aio_over(unsigned long context, int most, struct io_event *events) {
    long count;
    do {
        count = syscall(SYS_io_getevents, context, 0L, (long)most, events, NULL);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? 0 : (int)count;
}

static inline int native_open_direct(const char *path) {
    return open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
}
#endif
