"""Programs with forms of Python or of other languages that tileops lacks, and their errors."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T
from tests.frontend.macros_elsewhere import copied_twice
from tests.frontend.registry import bad, bad_definition
from tileops.errors import (
    ProgramAttributeError,
    ProgramError,
    ProgramSyntaxError,
    ProgramTypeError,
    ProgramValueError,
)

TABLE = {64: 2.0}


# -- names of other languages ----------------------------------------------------------------------
@bad(ProgramAttributeError)
def product_as_in_triton(A):
    A: T.Tensor((16, 16), T.float16)
    with T.Kernel(1):
        T.fill(A, T.dot(A, A))


@bad(ProgramAttributeError)
def choice_as_in_numpy(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        A[0] = T.where(A[0] > 0, A[0], 0.0)


@bad(ProgramAttributeError)
def load_as_in_triton(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        x = T.load(A)
        A[0] = x


@bad(ProgramAttributeError)
def indices_as_in_numpy(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        A[T.arange(0, 16)] = 1.0


@bad(ProgramAttributeError)
def method_as_in_torch(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        A[0] = A.sum()


# -- loops ---------------------------------------------------------------------------------------
@bad(ProgramTypeError)
def loop_over_enumerate(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        for i, j in enumerate(range(4)):
            A[i] = j


@bad(ProgramTypeError)
def loop_over_zip(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        for i, j in zip(range(4), range(4), strict=True):
            A[i] = j


@bad(ProgramTypeError)
def loop_over_enumerate_of_a_run_time_range(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    with T.Kernel(1):
        for i, j in enumerate(range(N)):
            A[i] = j


@bad(ProgramTypeError)
def loop_over_zip_of_loops(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        for i, j in zip(T.serial(4), T.serial(4), strict=True):
            A[i] = j


@bad(ProgramTypeError)
def loop_over_a_reversed_range(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        for i in reversed(range(4)):
            A[i] = 0.0


@bad(ProgramTypeError)
def loop_over_a_reversed_run_time_range(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    with T.Kernel(1):
        for i in reversed(range(N)):
            A[i] = 0.0


@bad(ProgramTypeError)
def loop_over_map(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        for i in map(abs, range(4)):
            A[i] = 0.0


@bad(ProgramTypeError)
def loop_over_items_of_a_dict(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        for i, x in TABLE.items():
            A[i] = x


@bad(ProgramTypeError)
def comprehension_over_a_run_time_range(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    with T.Kernel(1):
        values = [A[i] for i in range(N)]
        A[0] = values[0]


@bad(ProgramTypeError)
def comprehension_over_a_loop(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1):
        values = [A[i] for i in T.serial(4)]
        A[0] = values[0]


# -- T.Kernel ------------------------------------------------------------------------------------
@bad(ProgramTypeError)
def warps_of_a_kernel(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1, num_warps=4):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def stages_of_a_kernel(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1, num_stages=2):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def grid_by_name(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(grid=(4, 2)):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def blocks_by_name(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(blocks=4):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def block_by_name(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1, block=64):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def cluster_by_another_name(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(2, cluster_size=2):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def unknown_argument_of_a_kernel(A):
    A: T.Tensor((16,), T.float32)
    with T.Kernel(1, colour="red"):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def argument_by_the_name_of_another_language(A):
    A: T.Tensor((16, 16), T.float32)
    with T.Kernel(1):
        tile = T.alloc_fragment((16, 16), T.float32)
        row = T.alloc_fragment((16,), T.float32)
        T.reduce_sum(tile, row, axis=1)


# -- annotations and None --------------------------------------------------------------------------
@bad_definition(ProgramTypeError)
def tensor_without_an_annotation():
    @tileops.jit
    def doubled(A):
        B = T.empty((8,), T.float32)
        with T.Kernel(1):
            for i in T.Parallel(8):
                B[i] = A[i] * 2.0
        return B

    doubled(torch.ones(8))


@bad_definition(ProgramTypeError)
def target_without_an_annotation():
    @tileops.jit
    def copied(A, B):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1):
            T.copy(A, B)

    copied(torch.ones(8), torch.ones(8))


@bad_definition(ProgramTypeError)
def unused_tensor_without_an_annotation():
    @tileops.jit
    def filled(A, like):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1):
            T.fill(A, 0.0)

    filled.compile(torch.ones(8), torch.ones(8, 2))


@bad(ProgramValueError)
def parameter_in_arithmetic_before_its_annotation(A):
    twice = A + A
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        T.fill(A, twice)


@bad(ProgramTypeError, Out=None)
def store_to_an_output_that_is_left_out(A, Out=None):
    A: T.Tensor((8,), T.float32)
    Out: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(8):
            Out[i] = A[i]


@bad(ProgramTypeError, Out=None)
def load_of_an_input_that_is_left_out(A, Out=None):
    A: T.Tensor((8,), T.float32)
    Out: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(8):
            A[i] = (
                A[i]
                + Out[i]
            )  # fmt: skip


@bad(ProgramTypeError, Out=None)
def copy_to_an_output_that_is_left_out(A, Out=None):
    A: T.Tensor((8,), T.float32)
    Out: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        T.copy(A, Out)


@bad(ProgramAttributeError, Out=None)
def shape_of_an_output_that_is_left_out(A, Out=None):
    A: T.Tensor((8,), T.float32)
    Out: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        T.fill(A, Out.shape[0])


@bad(ProgramTypeError, Out=None)
def output_that_is_left_out_in_a_macro(A, Out=None):
    A: T.Tensor((8,), T.float32)
    Out: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        copied_twice(Out, A)


@bad(ProgramTypeError, Out=None)
def other_name_of_an_output_that_is_left_out(A, Out=None):
    A: T.Tensor((8,), T.float32)
    Out: T.Tensor((8,), T.float32)
    target = Out
    with T.Kernel(1):
        target[0] = A[0]


@bad(ProgramTypeError)
def condition_on_a_tensor(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        if A:
            T.fill(A, 0.0)


# -- programs and macros ---------------------------------------------------------------------------
@bad(ProgramSyntaxError)
def program_that_names_itself(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        T.fill(A, 0.0)
        if len(TABLE) > 5:
            program_that_names_itself(A)


@bad_definition(ProgramSyntaxError)
def inner_program_that_names_itself():
    @tileops.jit
    def inner(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1):
            T.fill(A, (lambda: inner)())

    inner(torch.ones(8))


@tileops.jit
def zeroed(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        T.fill(A, 0.0)


@bad(ProgramTypeError)
def program_in_a_program(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        zeroed(A)


@T.macro
def stored(dst, i, value):
    dst[i] = value


@T.macro
def stored_at_both_ends(dst, value):
    stored(dst, 0, value)
    if value == 0:
        stored(dst, -9, value)


@T.macro
def endless(dst, n):
    endless(dst, n + 1)


@bad(ProgramError)
def error_in_a_macro_of_a_macro(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_fragment((8,), T.float32)
        for value in range(1):
            stored_at_both_ends(tile, value)
        T.copy(tile, A)


@bad(ProgramValueError)
def error_in_macros_of_another_file(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_fragment((16,), T.float32)
        other = T.alloc_fragment((8,), T.float32)
        T.copy(A, other)
        copied_twice(tile, other)


@bad(ProgramError)
def python_error_in_a_macro(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        stored(TABLE.items(), 0, 1.0)
        T.fill(A, 0.0)


@bad(ProgramError)
def macro_without_end(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        endless(A, 0)


@bad_definition(ProgramError)
def error_in_a_macro_of_a_lazy_program():
    @tileops.jit
    def lazy(n: int = 8):
        @T.macro
        def past_the_end(tile):
            stored(tile, n, 1.0)

        @T.prim_func
        def main(A: T.Tensor((n,), T.float32)):
            with T.Kernel(1):
                tile = T.alloc_shared((n,), T.float32)
                past_the_end(tile)
                T.copy(tile, A)

        return main

    lazy(8)


# -- sizes ---------------------------------------------------------------------------------------
@bad(ProgramValueError, n=1 << 36)
def shared_tile_of_2_to_the_36(A, n: int):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        rows = T.alloc_shared((n,), T.float32)
        rows[0] = A[0]


@bad(ProgramValueError, n=1 << 62)
def fragment_of_2_to_the_62(A, n: int):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        acc = T.alloc_fragment((n,), T.float32)
        T.clear(acc)


@bad(ProgramValueError, n=1 << 40)
def local_array_whose_size_overflows_64_bits(A, n: int):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        mine = T.alloc_local((n, n), T.float32)
        mine[0, 0] = A[0]


@bad(ProgramValueError, n=1 << 31)
def reducer_of_2_to_the_31(A, n: int):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        sums = T.alloc_reducer((n,), T.float32)
        T.clear(sums)


@bad(ProgramValueError, n=1 << 31)
def workspace_whose_size_overflows_64_bits(A, n: int):
    A: T.Tensor((8,), T.float32)
    scratch = T.alloc_global((n, n), T.float32)
    with T.Kernel(1):
        scratch[0, 0] = A[0]


@bad(ProgramValueError, n=1 << 62)
def output_whose_size_overflows_64_bits(A, n: int):
    A: T.Tensor((8,), T.float32)
    B = T.empty((n, 4), T.float32)
    with T.Kernel(1):
        B[0, 0] = A[0]
    return B
