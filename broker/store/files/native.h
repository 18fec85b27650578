/* The system calls that Python's os module lacks or that must run without Python's lock. */
#ifndef LEVERET_NATIVE_H
#define LEVERET_NATIVE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* What is in the page cache now; -1 with EAGAIN when the disk would have to be asked. */
static inline ssize_t native_read_now(int fd, void *data, size_t length, uint64_t offset) {
    struct iovec part = {data, length};
#ifdef RWF_NOWAIT
    return preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT);
#else
    errno = EAGAIN;
    return -1;
#endif
}

static inline int native_errno(void) { return errno; }

static inline int native_write_all(int fd, const uint8_t *data, size_t length, uint64_t offset) {
    while (length) {
        ssize_t n = pwrite(fd, data, length, (off_t)offset);
        if (n < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        data += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return 0;
}

static inline int native_read_all(int fd, uint8_t *data, size_t length, uint64_t offset,
                                  size_t *done) {
    *done = 0;
    while (*done < length) {
        ssize_t n = pread(fd, data + *done, length - *done, (off_t)(offset + *done));
        if (n < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        if (n == 0) break;
        *done += (size_t)n;
    }
    return 0;
}

/* A file that has no name and is gone when it is closed; where the file system has no such files,
   one whose name is taken away at once. */
static inline int native_open_nameless(const char *directory, int *fd) {
    *fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/.content.XXXXXX", directory) >= (int)sizeof path) {
            return ENAMETOOLONG;
        }
        *fd = mkostemp(path, O_CLOEXEC);
        if (*fd >= 0) unlink(path);
    }
    return *fd < 0 ? errno : 0;
}

/* Errors that end by themselves when space is freed: no space, over quota. */
static inline int native_is_full(int error) { return error == ENOSPC || error == EDQUOT; }

/* Bytes an unprivileged writer may still use; all free ones if that is unknown. */
static inline uint64_t native_free(int fd) {
    struct statvfs state;
    if (fstatvfs(fd, &state)) return UINT64_MAX;
    return (uint64_t)state.f_bavail * state.f_frsize;
}

static inline int native_sync_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A queue's directory may have been removed since it was noted: nothing is left to sync. */
    if (fd < 0) return errno == ENOENT ? 0 : errno;
    int error = fsync(fd) ? errno : 0;
    close(fd);
    return error;
}

static inline int native_sync_file_system(int fd) { return syncfs(fd) ? errno : 0; }

static inline int native_open_directory(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static inline int native_punch(int fd, uint64_t offset, uint64_t length) {
    while (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                     (off_t)length)) {
        if (errno != EINTR) return errno;
    }
    return 0;
}

/* Space that reads as zeros; a file that ends before its end is lengthened. */
static inline int native_reserve(int fd, uint64_t offset, uint64_t length) {
    while (fallocate(fd, 0, (off_t)offset, (off_t)length)) {
        if (errno != EINTR) return errno;
    }
    return 0;
}

/* Asks the disk for the first bytes of every file in a directory, without waiting for them. */
static inline void native_read_ahead(const char *path, size_t length) {
    DIR *directory = opendir(path);
    struct dirent *entry;
    if (directory == NULL) return;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_type != DT_REG) continue;
        int fd = openat(dirfd(directory), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        posix_fadvise(fd, 0, (off_t)length, POSIX_FADV_WILLNEED);
        close(fd);
    }
    closedir(directory);
}

static inline int native_block_size(int fd) {
    struct stat state;
    return fstat(fd, &state) || state.st_blksize < 512 ? 4096 : (int)state.st_blksize;
}

static inline int native_write_file(const char *path, const uint8_t *data, size_t length) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0) return errno;
    int error = native_write_all(fd, data, length, 0);
    close(fd);
    return error;
}
#endif
