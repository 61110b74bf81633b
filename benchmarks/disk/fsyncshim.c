/* The simulated disk: preloaded, it turns fsync and fdatasync into a fixed pause, and counts them.
 *
 * A shared disk's fsync drifts by an order of magnitude within minutes, so rates measured on it cannot be compared. On
 * tmpfs with this shim every sync costs the same. It is a cost model, not a crash test: nothing is made durable.
 *
 * Invariants:
 * - the pause is HOLDFAST_SHIM_SLEEP_US microseconds (1000 when unset), whole even when signals arrive;
 * - each call adds 1 to a counter shared by all processes through the file HOLDFAST_SHIM_COUNTER: two native 64-bit
 *   integers, fsync then fdatasync; without that file calls pause and are not counted;
 * - a bad descriptor still fails with EBADF, and is not counted.
 *
 * sync_file_range and msync are left alone: PostgreSQL uses them as hints for write-back, SQLite not at all, and
 * neither relies on them for durability.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FSYNC, FDATASYNC, KINDS };

static uint64_t *counters;
static struct timespec pause_length = {0, 1000000};

__attribute__((constructor)) static void open_counters(void)
{
    const char *sleep_us = getenv("HOLDFAST_SHIM_SLEEP_US");
    const char *path = getenv("HOLDFAST_SHIM_COUNTER");
    struct stat status;

    if (sleep_us != NULL) {
        long us = strtol(sleep_us, NULL, 10);
        pause_length.tv_sec = us / 1000000;
        pause_length.tv_nsec = us % 1000000 * 1000;
    }
    if (path == NULL)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    /* With a file that is too short the first count would fail with SIGBUS. */
    if (fstat(fd, &status) == 0 && status.st_size >= (off_t)(KINDS * sizeof *counters)) {
        void *mapped = mmap(NULL, KINDS * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED)
            counters = mapped;
    }
    close(fd);
}

static int simulate(int fd, int kind)
{
    struct timespec left = pause_length;
    int saved;

    if (fcntl(fd, F_GETFD) < 0)
        return -1;
    saved = errno;
    if (counters != NULL)
        __atomic_add_fetch(&counters[kind], 1, __ATOMIC_SEQ_CST);
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
    errno = saved;
    return 0;
}

int fsync(int fd)
{
    return simulate(fd, FSYNC);
}

int fdatasync(int fd)
{
    return simulate(fd, FDATASYNC);
}
