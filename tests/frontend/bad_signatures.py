"""Programs whose signature, launch or construct breaks a rule; golden files hold their errors."""

from __future__ import annotations

import tileops.language as T
from tests.frontend.registry import bad, bad_definition
from tileops.errors import (
    NoBuilderError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.frontend import trace


# -- the signature -------------------------------------------------------------------------------
@bad(ProgramValueError)
def output_that_is_not_returned(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    C = T.empty((M,), T.float32)
    D = T.empty((M,), T.float32)
    with T.Kernel(1) as bx:
        C[bx] = A[bx]
        D[bx] = A[bx]
    return C


@bad(ProgramValueError)
def return_of_something_else(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1) as bx:
        A[bx] = 0.0
    return A


@bad(ProgramValueError)
def unused_size_constant(A):
    M, _N = T.const("M, N")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1) as bx:
        A[bx] = 0.0


@bad(ProgramValueError)
def dynamic_size_of_no_input(A):
    M = T.const("M")
    L = T.dynamic("L")
    A: T.Tensor((M,), T.float32)
    C = T.empty((L,), T.float32)
    with T.Kernel(1) as bx:
        C[bx] = A[bx]
    return C


@bad(ProgramTypeError)
def compile_time_parameter_without_a_value(A, block):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1) as bx:
        A[bx] = 0.0


@bad(ProgramValueError)
def strides_of_another_rank(A):
    M, N = T.const("M, N")
    A: T.StridedTensor((M, N), (1,), T.float32)
    with T.Kernel(1) as bx:
        A[bx, 0] = 0.0


@bad(ProgramTypeError)
def annotation_that_is_no_type(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    M: T.float32
    with T.Kernel(1) as bx:
        A[bx] = 0.0


@bad_definition(ProgramTypeError)
def prim_func_parameter_without_an_annotation():
    @T.prim_func
    def main(A: T.Tensor((8,), T.float32), n):
        with T.Kernel(1) as bx:
            A[bx] = n


@bad(ProgramTypeError)
def unknown_argument_of_a_construct(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        T.alloc_shared((8,), T.float32, place="left")


@bad(ProgramValueError)
def parameter_used_before_its_annotation(A):
    M = T.const("M")
    C = T.empty(A.shape, T.float32)
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1) as bx:
        C[bx] = A[bx]
    return C


# -- launches and constructs ---------------------------------------------------------------------
@bad(ProgramValueError)
def negative_thread_count(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1, threads=0) as bx:
        A[bx] = 0.0


@bad(ProgramValueError)
def kernel_inside_a_kernel(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1) as bx, T.Kernel(2) as by:
        A[bx] = by


@bad(ProgramValueError)
def run_time_shape_of_a_tile(A):
    M = T.dynamic("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        T.alloc_shared((M,), T.float32)


@bad(NoBuilderError)
def store_outside_a_kernel(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    A[0] = 1.0
    with T.Kernel(1) as bx:
        A[bx] = 0.0


@bad(UnsupportedConstructError)
def construct_that_tileops_lacks(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        tile = T.alloc_tmem((128, 128), T.float32)
        T.copy(tile, A)


@bad(ProgramValueError)
def layout_of_another_shape(A):
    M = T.const("M")
    A: T.Tensor((M, 8), T.float32)
    with T.Kernel(1):
        T.annotate_layout({A: T.Layout((4, 16), lambda i, j: (j, i))})


@bad(ProgramValueError)
def layout_by_more_than_indices(A, n: T.int32):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        T.annotate_layout({A: lambda i: (i + n) % 8})


@bad(ProgramValueError)
def two_layouts_of_a_tensor(A):
    A: T.Tensor((8, 8), T.float32)
    with T.Kernel(1):
        T.annotate_layout({A: lambda i, j: (j, i)})
        T.annotate_layout({A: lambda i, j: (i, j)})


@bad(ProgramTypeError)
def layout_that_is_none(A):
    A: T.Tensor((8,), T.float32)
    with T.Kernel(1):
        T.annotate_layout({A: 3})


@bad(UnsupportedConstructError)
def layout_of_a_strided_tensor(A):
    A: T.StridedTensor((8, 8), (16, 1), T.float32)
    with T.Kernel(1):
        T.annotate_layout({A: lambda i, j: (j, i)})


@bad(UnsupportedConstructError)
def layout_of_half_bytes(A):
    A: T.Tensor((8, 8), T.int4)
    with T.Kernel(1):
        T.annotate_layout({A: lambda i, j: (j, i)})


@bad(UnsupportedConstructError)
def layout_of_neighbours(A, B):
    A: T.Tensor((8, 8), T.float32)
    B: T.Tensor((8, 8), T.float32)
    with T.Kernel(1):
        T.annotate_layout({A: lambda i, j: (j, i)})
        T.atomic_addx2(A[0, 0], B[0, 0])


@bad(UnsupportedConstructError)
def neighbours_before_a_layout(A, B):
    A: T.Tensor((8, 8), T.float32)
    B: T.Tensor((8, 8), T.float32)
    with T.Kernel(1):
        T.atomic_addx4(A[0, 0], B[0, 0])
        T.annotate_layout({A: lambda i, j: (j, i)})


@bad(ProgramTypeError)
def neighbours_of_a_slice_of_another_length(A, B):
    A: T.Tensor((8, 8), T.float32)
    B: T.Tensor((8, 8), T.float32)
    with T.Kernel(1):
        T.atomic_addx4(A[0, 0], B[0, 0:3])


@bad(ProgramTypeError)
def an_or_of_floats(A):
    A: T.Tensor((8, 8), T.float32)
    with T.Kernel(1):
        T.atomic_or(A, 1)


@bad_definition(NoBuilderError)
def construct_outside_a_program():
    T.alloc_shared((8,), T.float32)


@bad_definition(ProgramValueError)
def name_that_only_an_annotation_uses():
    extent = 8

    def program(A):
        A: T.Tensor((extent,), T.float32)
        with T.Kernel(1):
            A[0] = 0.0

    trace(program, name="program", static={}, consts=None)
