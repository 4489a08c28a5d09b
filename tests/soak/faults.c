/* Makes one call that changes a file fail, or ends the program at that call.  tests/soak/test_faults.py preloads it.

   Counted are the calls on files below FAULT_ROOT of all processes, in the shared file FAULT_COUNT.  The calls with the
   numbers FAULT_FROM to FAULT_TO fail with the error FAULT_ERROR, or send FAULT_SIGNAL to the process FAULT_MAIN.  A
   signal is sent before the call, which then happens if the process still lives.  Calls that only remove a file or
   change its mode never fail, because their file would stay.  FAULT_LOG gets a line for each call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long *count;

static long number_of(const char *name) {
    const char *value = getenv(name);
    return value ? atol(value) : 0;
}

static long next_number(void) {
    if (!count) {
        int file = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_COUNT"), O_RDWR | O_CLOEXEC, 0);
        count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        syscall(SYS_close, file);
    }
    return __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
}

static void note(long number, const char *call, const char *path) {
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
    int file = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    syscall(SYS_write, file, line, (size_t)length);
    syscall(SYS_close, file);
}

/* Return whether this call has to fail; errno is set then. */
static int fails(const char *call, int folder, const char *path) {
    char whole[PATH_MAX], link[64];
    int before = errno;
    const char *root = getenv("FAULT_ROOT");
    if (!root || !path) return 0;
    if (path[0] != '/') {
        if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, whole, sizeof whole - 1);
        if (length < 0) length = 0;
        snprintf(whole + length, sizeof whole - length, "/%s", path);
        path = whole;
    }
    errno = before;
    if (strncmp(path, root, strlen(root))) return 0;
    long number = next_number(), from = number_of("FAULT_FROM");
    note(number, call, path);
    errno = before;
    if (!from || number < from || number > number_of("FAULT_TO")) return 0;
    if (number_of("FAULT_SIGNAL")) {
        kill(number_of("FAULT_MAIN"), number_of("FAULT_SIGNAL"));
        return 0;
    }
    if (strstr("unlinkat rmdir chmod", call)) return 0;
    errno = number_of("FAULT_ERROR");
    return 1;
}

static int fails_open(const char *call, int folder, const char *path, int flags) {
    return ((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT) && fails(call, folder, path);
}

/* A failing write to a pipe is another case: only files on a disk count. */
static int fails_file(const char *call, int file) {
    struct stat status;
    return !syscall(SYS_fstat, file, &status) && S_ISREG(status.st_mode) && fails(call, file, "");
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real) real = dlsym(RTLD_NEXT, name)

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                      \
        va_end(rest);                                                                                                  \
        REAL(int, #name, const char *, int, ...);                                                                      \
        return fails_open(#name, AT_FDCWD, path, flags) ? -1 : real(path, flags, mode);                                \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                      \
        va_end(rest);                                                                                                  \
        REAL(int, #name, int, const char *, int, ...);                                                                 \
        return fails_open(#name, folder, path, flags) ? -1 : real(folder, path, flags, mode);                          \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return fails_file("write", file) ? -1 : real(file, data, size);
}

#define PWRITE(name, offset_type)                                                                                      \
    ssize_t name(int file, const void *data, size_t size, offset_type at) {                                            \
        REAL(ssize_t, #name, int, const void *, size_t, offset_type);                                                  \
        return fails_file(#name, file) ? -1 : real(file, data, size, at);                                              \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    return fails_file("copy_file_range", out) ? -1 : real(in, from, out, to, size, flags);
}

ssize_t sendfile64(int out, int in, off64_t *from, size_t size) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    return fails_file("sendfile64", out) ? -1 : real(out, in, from, size);
}

int fsync(int file) {
    REAL(int, "fsync", int);
    return fails_file("fsync", file) ? -1 : real(file);
}

#define TWO(name)                                                                                                      \
    int name(const char *one, const char *two) {                                                                       \
        REAL(int, #name, const char *, const char *);                                                                  \
        return fails(#name, AT_FDCWD, two) ? -1 : real(one, two);                                                      \
    }
TWO(rename)
TWO(link)
TWO(symlink)

int linkat(int folder, const char *one, int other, const char *two, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    return fails("linkat", other, two) ? -1 : real(folder, one, other, two, flags);
}

#define ONE(name)                                                                                                      \
    int name(const char *path) {                                                                                       \
        REAL(int, #name, const char *);                                                                                \
        return fails(#name, AT_FDCWD, path) ? -1 : real(path);                                                         \
    }
ONE(unlink)
ONE(rmdir)

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    return fails("unlinkat", folder, path) ? -1 : real(folder, path, flags);
}

#define MODE(name)                                                                                                     \
    int name(const char *path, mode_t mode) {                                                                          \
        REAL(int, #name, const char *, mode_t);                                                                        \
        return fails(#name, AT_FDCWD, path) ? -1 : real(path, mode);                                                   \
    }
MODE(mkdir)
MODE(chmod)

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    return fails("mkdirat", folder, path) ? -1 : real(folder, path, mode);
}
