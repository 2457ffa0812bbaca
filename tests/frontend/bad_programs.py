"""Programs whose body breaks one rule each; golden files hold their errors."""

from __future__ import annotations

import math

import tileops.language as T
from tests.frontend.registry import bad
from tileops.errors import (
    ProgramError,
    ProgramIndexError,
    ProgramSyntaxError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)

WEIGHTS = (1.0, 2.0)


# -- shapes and dtypes ---------------------------------------------------------------------------
@bad(ProgramValueError)
def gemm_inner_extents_disagree(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_shared((128, 32), T.float16)
        b = T.alloc_shared((64, 128), T.float16)
        c = T.alloc_fragment((128, 128), T.float32)
        T.gemm(a, b, c)


@bad(ProgramValueError)
def gemm_result_has_wrong_rows(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_shared((128, 32), T.float16)
        b = T.alloc_shared((128, 32), T.float16)
        c = T.alloc_fragment((64, 128), T.float32)
        T.gemm(a, b, c, transpose_B=True)


@bad(ProgramTypeError)
def gemm_operands_of_two_dtypes(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_shared((64, 32), T.float16)
        b = T.alloc_shared((32, 64), T.bfloat16)
        c = T.alloc_fragment((64, 64), T.float32)
        T.gemm(a, b, c)


@bad(ProgramTypeError)
def gemm_of_floats_into_integers(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_shared((64, 32), T.float16)
        b = T.alloc_shared((32, 64), T.float16)
        c = T.alloc_fragment((64, 64), T.int32)
        T.gemm(a, b, c)


@bad(ProgramValueError)
def gemm_straight_from_global_memory(A, B):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    with T.Kernel(1):
        c = T.alloc_fragment((64, 64), T.float32)
        T.gemm(A, B, c)


@bad(ProgramValueError)
def copy_between_different_shapes(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_shared((128, 32), T.float16)
        b = T.alloc_shared((128, 64), T.float16)
        T.copy(a, b)


@bad(ProgramValueError)
def copy_of_a_tile_with_too_many_dimensions(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1) as bx:
        a = T.alloc_shared((128, 32), T.float16)
        T.copy(A[bx * 128], a)


@bad(ProgramValueError)
def copy_into_a_smaller_tile(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1) as bx:
        a = T.alloc_shared((64,), T.float16)
        T.copy(A[bx * 128 : bx * 128 + 128], a)


@bad(ProgramValueError)
def reduce_into_the_wrong_shape(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_fragment((128, 32), T.float32)
        out = T.alloc_fragment((32,), T.float32)
        T.reduce_sum(a, out, dim=1)


@bad(ProgramTypeError)
def places_in_floats(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_fragment((128, 32), T.float32)
        out = T.alloc_fragment((128,), T.float32)
        T.argmax(a, out, dim=1)


@bad(ProgramValueError)
def reduce_along_a_missing_dimension(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_fragment((128, 32), T.float32)
        out = T.alloc_fragment((128,), T.float32)
        T.reduce_max(a, out, dim=2)


@bad(ProgramValueError)
def reshape_that_changes_the_size(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float16)
    with T.Kernel(1):
        a = T.alloc_shared((128, 32), T.float16)
        T.reshape(a, (64, 32))


@bad(ProgramTypeError)
def unknown_dtype(A):
    M = T.const("M")
    A: T.Tensor((M,), "float17")
    with T.Kernel(1):
        pass


@bad(ProgramTypeError)
def integers_divided_with_a_slash(A):
    M = T.const("M")
    A: T.Tensor((M,), T.int32)
    with T.Kernel(1) as bx:
        A[bx] = A[bx] / 2


@bad(ProgramTypeError)
def infinity_of_an_integer(A):
    M = T.const("M")
    A: T.Tensor((M,), T.int32)
    with T.Kernel(1) as bx:
        A[bx] = T.infinity(A.dtype)


# -- indexing --------------------------------------------------------------------------------------
@bad(ProgramIndexError)
def too_few_indices(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    with T.Kernel(1) as bx:
        A[bx] = 0.0


@bad(ProgramIndexError)
def constant_index_outside_a_tile(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1) as bx:
        tile = T.alloc_shared((8,), T.float32)
        A[bx] = tile[8]


@bad(ProgramTypeError)
def float_as_an_index(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        A[A[0]] = 0.0


@bad(ProgramValueError)
def slice_with_a_step(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_shared((8,), T.float32)
        T.copy(A[0:16:2], tile)


@bad(ProgramTypeError)
def store_to_a_slice(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        A[0:8] = 0.0


# -- T.Parallel ------------------------------------------------------------------------------------
@bad(ProgramValueError)
def tile_operation_inside_parallel(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_shared((8,), T.float32)
        for i in T.Parallel(8):
            T.copy(A[i * 8], tile)


@bad(ProgramValueError)
def parallel_loops_not_perfectly_nested(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(8):
            A[i, 0] = 1.0
            for j in T.Parallel(8):
                A[i, j] = 0.0


@bad(ProgramValueError)
def pipelined_loop_inside_parallel(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(8):
            for j in T.Pipelined(8, num_stages=2):
                A[i, j] = 0.0


@bad(ProgramValueError)
def fragment_under_a_run_time_parallel_extent(A):
    M = T.dynamic("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_fragment((64,), T.float32)
        for i in T.Parallel(M):
            tile[i] = A[i]


@bad(ProgramValueError)
def local_buffer_indexed_by_a_parallel_variable(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_local((64,), T.float32)
        for i in T.Parallel(64):
            tile[i] = A[i]


@bad(ProgramValueError)
def break_out_of_parallel(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(64):
            if A[i] > 0.0:
                break
            A[i] = 1.0


# -- names and values ----------------------------------------------------------------------------
@bad(ProgramValueError)
def name_read_outside_its_region(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        for i in T.serial(8):
            x = A[i] * 2.0
        A[0] = x


@bad(ProgramValueError)
def name_changed_in_one_branch(A, flag: bool = True):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        scale = 1.0
        if A[0] > 0.0:
            scale = 2.0
        A[1] = scale


@bad(ProgramValueError)
def immutable_name_carried_around_a_loop(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        total = 0.0
        for i in T.serial(8):
            total = total + A[i]
        A[0] = total


@bad(ProgramTypeError)
def store_to_an_immutable_value(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        x = A[0] + 1.0
        x[0] = 2.0


@bad(ProgramTypeError)
def run_time_value_as_a_python_condition(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)

    def larger(x, y):
        if x > y:
            return x
        return y

    with T.Kernel(1):
        A[0] = larger(A[1], A[2])


@bad(ProgramTypeError)
def loop_over_a_list(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        for i in [1, 2, 3]:
            A[i] = 0.0


@bad(ProgramSyntaxError)
def return_under_a_run_time_condition(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    C = T.empty((M,), T.float32)
    with T.Kernel(1) as bx:
        if A[bx] > 0.0:
            return C
    return C


@bad(ProgramError)
def while_true(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        while True:
            A[0] = 1.0


@bad(ProgramSyntaxError)
def attribute_assignment(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        A.tag = 3


@bad(ProgramSyntaxError)
def try_statement(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        try:
            A[0] = 1.0
        finally:
            A[1] = 1.0


# -- conversions ---------------------------------------------------------------------------------
@bad(ProgramValueError)
def cast_with_an_unknown_rounding(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = T.cast(T.cast(A[1], "float8_e4m3fn", round="nearest"), "float32")


@bad(ProgramValueError)
def stochastic_cast_without_bits(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = T.cast(T.cast(A[1], "float8_e4m3fn", round="rs"), "float32")


@bad(ProgramValueError)
def cast_that_saturates_by_name(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = T.cast(T.cast(A[1], "float8_e4m3fn", sat="yes"), "float32")


@bad(UnsupportedConstructError)
def stochastic_cast(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = T.cast(T.cast(A[1], "float8_e4m3fn", round="rs", rbits=3), "float32")


@bad(UnsupportedConstructError)
def cast_towards_zero(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = T.cast(T.cast(A[1], "float16", round="rz"), "float32")


@bad(UnsupportedConstructError)
def cast_beyond_all_numbers(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = T.cast(T.cast(A[1], "float4_e2m1fn", sat=False), "float32")


@bad(ProgramTypeError)
def function_of_python_on_a_run_time_value(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = math.exp(A[1])


@bad(ProgramTypeError)
def arithmetic_on_a_tile(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_fragment((8,), T.float32)
        T.copy(tile * 2.0, A)


@bad(ProgramTypeError)
def a_slice_as_an_operand(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = 1.0 - A[0:4]


@bad(ProgramIndexError)
def index_past_the_end_of_a_python_sequence(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        A[0] = WEIGHTS[2]
