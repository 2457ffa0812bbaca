// Included before every file of a build: binds calls to the oldest versions of glibc's functions,
// so that a binary built on a new system loads on any with glibc 2.28. Functions that older glibcs
// lack are in libc.cpp and libstdcxx.cpp beside this.
#pragma once

#include <features.h>

#if defined(__GLIBC__) && defined(__x86_64__)
#define TILEOPS_OLDEST_GLIBC "GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define TILEOPS_OLDEST_GLIBC "GLIBC_2.17"
#endif

// Version 2.34 moved these from other libraries into libc.
#ifdef TILEOPS_OLDEST_GLIBC
#define TILEOPS_OLDEST(name) __asm__(".symver " #name "," #name "@" TILEOPS_OLDEST_GLIBC)
TILEOPS_OLDEST(dlclose);
TILEOPS_OLDEST(dlerror);
TILEOPS_OLDEST(dlopen);
TILEOPS_OLDEST(dlsym);
TILEOPS_OLDEST(pthread_mutex_trylock);
#endif
