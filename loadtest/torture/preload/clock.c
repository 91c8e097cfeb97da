// Redis' clock is ahead of the machine's by what a file says, in microseconds, at any time. Loaded
// before Redis' own libraries, as libfaketime is, which does not go with Redis' allocator.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("OFFPATH_TORTURE_CLOCK");
  int file = name ? open(name, O_RDONLY) : -1;
  void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) abort();
  ahead = at;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  int64_t us = now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000 + *ahead;
  to->tv_sec = us / 1000000;
  to->tv_usec = us % 1000000;
  return 0;
}
