/* Preloaded into every process of a campaign. The driver changes their clock, disk and zone data through a shared page.
 *
 * One clock for all: the driver, the workers and the servers see the same steps, as on a machine whose clock is set.
 * On a full disk, calls that extend a file under one directory fail. Zone data comes from a copy beside the page. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ZONES "/usr/share/zoneinfo"

/* Written by shim.rs. */
struct control {
    volatile long long offset; /* microseconds */
    volatile int full;
    int unused;
    volatile char place[1024]; /* where the disk is full */
};

static const struct control *control;
static char zones[PATH_MAX];
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *dir = getenv("CHAOS_SHIM");
    char path[PATH_MAX];
    void *page = MAP_FAILED;
    int fd;

    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (dir == NULL)
        return;
    snprintf(path, sizeof path, "%s/control", dir);
    fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        page = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (page == MAP_FAILED) {
        fprintf(stderr, "chaos shim: %s cannot be read\n", path);
        abort();
    }
    control = page;
    snprintf(zones, sizeof zones, "%s/zones", dir);
}

/* The clock. */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = real_clock_gettime ? real_clock_gettime(clock, now) : syscall(SYS_clock_gettime, clock, now);

    if (!failed && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long offset = control->offset;
        long long nanos = now->tv_nsec + offset % 1000000 * 1000;
        now->tv_sec += offset / 1000000;
        if (nanos >= 1000000000) {
            now->tv_sec++;
            nanos -= 1000000000;
        } else if (nanos < 0) {
            now->tv_sec--;
            nanos += 1000000000;
        }
        now->tv_nsec = nanos;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to)
{
    struct timespec exact;

    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    if (to)
        *to = exact.tv_sec;
    return exact.tv_sec;
}

/* The disk. */

static int is_full(int fd, off_t end)
{
    struct stat file;
    char link[64], path[PATH_MAX];
    ssize_t length;

    if (control == NULL || !control->full)
        return 0;
    if (fstat(fd, &file) || !S_ISREG(file.st_mode) || end <= file.st_size)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strncmp(path, (const char *)control->place, strlen((const char *)control->place)) == 0;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at)
{
    if (is_full(fd, at + length)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, length, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    off_t end = at;

    for (int part = 0; part < count; part++)
        end += parts[part].iov_len;
    if (is_full(fd, end)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwritev, fd, parts, count, at, 0L);
}

int posix_fallocate(int fd, off_t at, off_t length)
{
    static int (*real)(int, off_t, off_t);

    if (is_full(fd, at + length))
        return ENOSPC;
    if (!real)
        real = dlsym(RTLD_NEXT, "posix_fallocate");
    return real(fd, at, length);
}

ssize_t pwrite64(int, const void *, size_t, off_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec *, int, off_t) __attribute__((alias("pwritev")));
int posix_fallocate64(int, off_t, off_t) __attribute__((alias("posix_fallocate")));

/* Zone data. */

static const char *moved(const char *path, char *to)
{
    size_t length = sizeof ZONES - 1;

    if (control == NULL || path == NULL || strncmp(path, ZONES, length) || (path[length] && path[length] != '/'))
        return path;
    snprintf(to, PATH_MAX, "%s%s", zones, path + length);
    return to;
}

int open(const char *path, int flags, ...)
{
    char to[PATH_MAX];
    mode_t mode = 0;

    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    return syscall(SYS_openat, AT_FDCWD, moved(path, to), flags, mode);
}

int open64(const char *, int, ...) __attribute__((alias("open")));

DIR *opendir(const char *path)
{
    static DIR *(*real)(const char *);
    char to[PATH_MAX];

    if (!real)
        real = dlsym(RTLD_NEXT, "opendir");
    return real(moved(path, to));
}

int stat(const char *restrict path, struct stat *restrict data)
{
    static int (*real)(const char *, struct stat *);
    char to[PATH_MAX];

    if (!real)
        real = dlsym(RTLD_NEXT, "stat");
    return real(moved(path, to), data);
}

int stat64(const char *restrict path, struct stat64 *restrict data)
{
    return stat(path, (struct stat *)data);
}

int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict data)
{
    char to[PATH_MAX];

    return syscall(SYS_statx, dir, moved(path, to), flags, mask, data);
}
