/* A wall clock that is wrong by what a file says; the monotonic clock stays as it is.
 *
 * Loaded into one agent with LD_PRELOAD. The file that CHAOS_CLOCK names holds two 64-bit numbers: by how many
 * nanoseconds the clock is off, and how often somebody was told so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL

static volatile int64_t *shared;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0)
        return;
    void *mapped = mmap(NULL, 2 * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        shared = mapped;
}

int clock_gettime(clockid_t id, struct timespec *at)
{
    if (!real_clock_gettime)
        real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(id, at);
    int64_t off = shared ? shared[0] : 0;
    if (result == 0 && off != 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t total = (int64_t)at->tv_sec * NS + at->tv_nsec + off;
        at->tv_sec = total / NS;
        at->tv_nsec = total % NS;
        __atomic_add_fetch((int64_t *)&shared[1], 1, __ATOMIC_RELAXED);
    }
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
