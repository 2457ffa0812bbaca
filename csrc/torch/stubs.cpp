// The pool of boxed entry points: stub number n loads n and jumps to tileops_invoke.
//
// A boxed function of the stable ABI gets no closure, so the address that torch calls must itself
// say which op it is. The stubs are tail jumps with no frame of their own: unwinding through them
// needs no tables.
#include "torch/stubs.h"

#if defined(__x86_64__)
// The System V convention passes stack, inputs, outputs in rdi, rsi, rdx; the slot becomes the
// fourth argument.
asm(R"(
    .text
    .p2align 4
    .globl tileops_stubs
    .hidden tileops_stubs
    .type tileops_stubs, @function
tileops_stubs:
    .set slot, 0
    .rept 65536
    .p2align 4
    movl $slot, %ecx
    jmp tileops_invoke
    .set slot, slot + 1
    .endr
    .p2align 4
    .size tileops_stubs, . - tileops_stubs
)");
#elif defined(__aarch64__)
// AAPCS64 passes them in x0, x1, x2; two instructions of 4 bytes, padded to the same stride.
asm(R"(
    .text
    .p2align 4
    .globl tileops_stubs
    .hidden tileops_stubs
    .type tileops_stubs, %function
tileops_stubs:
    .set slot, 0
    .rept 65536
    .p2align 4
    movz w3, #slot
    b tileops_invoke
    .set slot, slot + 1
    .endr
    .p2align 4
    .size tileops_stubs, . - tileops_stubs
)");
#else
#error "tileops supports x86-64 and aarch64"
#endif

extern "C" __attribute__((visibility("hidden"))) char tileops_stubs[];

namespace tileops {

BoxedFunction stub_address(uint32_t slot) {
  constexpr std::size_t kStride = 16;
  return reinterpret_cast<BoxedFunction>(tileops_stubs + slot * kStride);
}

}  // namespace tileops
