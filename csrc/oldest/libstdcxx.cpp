// What the libstdc++ of GCC 8 lacks and newer headers ask for. The definitions are this binary's
// alone, and stand on functions that every libstdc++ has.
#include <exception>
#include <new>

#include "oldest/libc.h"

#if defined(TILEOPS_OLDEST_GLIBC) && defined(__GLIBCXX__)

// Weak: a libstdc++ that is linked in (a compiler that has libstdc++.a alone) may define them too.
#define TILEOPS_OWN extern "C" __attribute__((visibility("hidden"), weak))

// GCC 11.
TILEOPS_OWN [[noreturn]] void tileops_bad_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void tileops_bad_length() {
  throw std::bad_array_new_length();
}

// GCC 12: an exception_ptr is one pointer, whose copies its constructor and destructor count. Both
// were functions of the library until then, and still are.
struct ExceptionPointer {
  void* object;
};
extern "C" void tileops_copy(ExceptionPointer* to, const ExceptionPointer* from) noexcept
    __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
extern "C" void tileops_destroy(ExceptionPointer* pointer) noexcept
    __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");

TILEOPS_OWN void tileops_add(ExceptionPointer* pointer) noexcept
    __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void tileops_add(ExceptionPointer* pointer) noexcept {
  ExceptionPointer counted;
  tileops_copy(&counted, pointer);
}

TILEOPS_OWN void tileops_release(ExceptionPointer* pointer) noexcept
    __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void tileops_release(ExceptionPointer* pointer) noexcept {
  ExceptionPointer last = *pointer;
  pointer->object = nullptr;
  tileops_destroy(&last);
}

static_assert(sizeof(std::exception_ptr) == sizeof(ExceptionPointer));

#endif
