/* Counts how often torch and tileops take the interpreter's lock; preloaded, so that the calls of
   both libraries come here first. */
#define _GNU_SOURCE
#include <dlfcn.h>

static long taken;

__attribute__((visibility("default"))) long locks_taken(void) { return taken; }

__attribute__((visibility("default"))) void PyEval_RestoreThread(void *state) {
  ++taken;
  ((void (*)(void *))dlsym(RTLD_NEXT, "PyEval_RestoreThread"))(state);
}

__attribute__((visibility("default"))) void PyEval_AcquireThread(void *state) {
  ++taken;
  ((void (*)(void *))dlsym(RTLD_NEXT, "PyEval_AcquireThread"))(state);
}
