/* Makes every read and write of a process do at most half of what was asked for, as NFS, FUSE and full pipes may.
   Up to PIPE_BUF bytes of a pipe are left whole, because POSIX guarantees that. Built and preloaded by test_short_io.py. With SHORT_IO_LOG, the name of each function is appended to that file once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t half(size_t count) { return count > 1 ? count / 2 : count; }

static size_t part(int fd, size_t count)
{
    struct stat status;
    if (count <= PIPE_BUF && fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode))
        return count;
    return half(count);
}

static void note(int *noted, const char *name)
{
    const char *path = getenv("SHORT_IO_LOG");
    if (*noted || !path)
        return;
    *noted = 1;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (file < 0)
        return;
    char line[64];
    size_t length = strlen(name);
    memcpy(line, name, length);
    line[length] = '\n';
    syscall(SYS_write, file, line, length + 1);
    close(file);
}

#define SHORTENED(type, name, parameters, arguments, count)                                                            \
    type name parameters                                                                                               \
    {                                                                                                                  \
        static type(*real) parameters;                                                                                 \
        static int noted;                                                                                              \
        if (!real)                                                                                                     \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                        \
        if (count > 1)                                                                                                 \
            note(&noted, #name);                                                                                       \
        return real arguments;                                                                                         \
    }

SHORTENED(ssize_t, read, (int fd, void *data, size_t n), (fd, data, part(fd, n)), n)
SHORTENED(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, part(fd, n)), n)
SHORTENED(ssize_t, pread, (int fd, void *data, size_t n, off_t at), (fd, data, part(fd, n), at), n)
SHORTENED(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, part(fd, n), at), n)
SHORTENED(ssize_t, pread64, (int fd, void *data, size_t n, off64_t at), (fd, data, part(fd, n), at), n)
SHORTENED(ssize_t, pwrite64, (int fd, const void *data, size_t n, off64_t at), (fd, data, part(fd, n), at), n)
SHORTENED(ssize_t, readv, (int fd, const struct iovec *parts, int n), (fd, parts, (int)half((size_t)n)), n)
SHORTENED(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, (int)half((size_t)n)), n)
SHORTENED(ssize_t, sendfile, (int to, int from, off_t *at, size_t n), (to, from, at, half(n)), n)
SHORTENED(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t n), (to, from, at, half(n)), n)
SHORTENED(ssize_t, copy_file_range, (int from, off64_t *in, int to, off64_t *out, size_t n, unsigned flags),
          (from, in, to, out, half(n), flags), n)
