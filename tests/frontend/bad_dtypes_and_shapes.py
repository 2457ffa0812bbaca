"""Programs that use a dtype variable or leading dimensions in a wrong place."""

from __future__ import annotations

import tileops.language as T
from tests.frontend.registry import bad
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError

OTHER = T.DTypeVar("dt", T.float32, T.float64)


# -- dtype variables -----------------------------------------------------------------------------
@bad(ProgramValueError)
def dtype_variable_of_no_tensor(A):
    M = T.const("M")
    dt = T.DTypeVar("dt", T.float16, T.float32)
    A: T.Tensor((M,), T.float32)
    C = T.empty((M,), dt)
    with T.Kernel(M) as i:
        C[i] = T.cast(A[i], dt)
    return C


@bad(ProgramValueError)
def dtype_variable_named_as_a_parameter(A):
    M = T.const("M")
    dt = T.DTypeVar("A", T.float16, T.float32)
    A: T.Tensor((M,), dt)
    with T.Kernel(M) as i:
        A[i] = 0


@bad(ProgramValueError)
def dtype_variable_named_as_a_size(A):
    M = T.const("M")
    dt = T.DTypeVar("M", T.float16, T.float32)
    A: T.Tensor((M,), dt)
    with T.Kernel(M) as i:
        A[i] = 0


@bad(ProgramValueError)
def dtype_variables_of_one_name(A, B):
    M = T.const("M")
    dt = T.DTypeVar("dt", T.float16, T.float32)
    A: T.Tensor((M,), dt)
    B: T.Tensor((M,), OTHER)
    with T.Kernel(M) as i:
        A[i] = B[i]


@bad(ProgramTypeError, alpha=1.0)
def dtype_variable_of_a_scalar(A, alpha):
    M = T.const("M")
    dt = T.DTypeVar("dt", T.float16, T.float32)
    A: T.Tensor((M,), dt)
    alpha: dt
    with T.Kernel(M) as i:
        A[i] = alpha


@bad(ProgramTypeError)
def dtype_variable_without_dtypes(A):
    M = T.const("M")
    dt = T.DTypeVar("dt")
    A: T.Tensor((M,), dt)
    with T.Kernel(M) as i:
        A[i] = 0


@bad(ProgramTypeError)
def dtype_variable_of_dtypes_stored_alike(A):
    M = T.const("M")
    dt = T.DTypeVar("dt", T.int8, T.int4)
    A: T.Tensor((M,), dt)
    with T.Kernel(M) as i:
        A[i] = 0


@bad(ProgramValueError)
def dtype_variable_without_a_name(A):
    M = T.const("M")
    dt = T.DTypeVar(T.float16, T.float32)
    A: T.Tensor((M,), dt)
    with T.Kernel(M) as i:
        A[i] = 0


@bad(UnsupportedConstructError)
def dtype_variable_of_vectors(A):
    M = T.const("M")
    dt = T.DTypeVar("dt", "float16x2", "float32x2")
    A: T.Tensor((M,), dt)
    with T.Kernel(M) as i:
        A[i] = 0


# -- leading dimensions ----------------------------------------------------------------------------
@bad(ProgramValueError)
def leading_dimensions_in_the_middle(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, ..., N), T.float32)
    with T.Kernel(M) as i:
        A[i, 0, 0] = 0


@bad(ProgramValueError)
def leading_dimensions_twice(A):
    N = T.const("N")
    A: T.Tensor((..., ..., N), T.float32)
    with T.Kernel(1):
        A[0, 0, 0] = 0


@bad(ProgramValueError)
def leading_dimensions_of_a_tile(A):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    with T.Kernel(A.shape[0]) as i:
        tile = T.alloc_shared((..., N), T.float32)
        T.copy(A[i, 0], tile)


@bad(ProgramValueError)
def leading_dimensions_of_a_workspace(A):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    work = T.alloc_global((..., N), T.float32)
    with T.Kernel(A.shape[0]) as i:
        work[i, 0] = A[i, 0]


@bad(ProgramValueError)
def leading_dimensions_of_an_output_alone(A):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    C = T.empty((..., N), T.float32)
    with T.Kernel(N) as i:
        C[0, i] = A[i]
    return C


@bad(ProgramValueError)
def leading_dimensions_with_many_strides(A):
    N = T.const("N")
    A: T.StridedTensor((..., N), (..., 1), T.float32)
    with T.Kernel(1):
        A[0, 0] = 0


@bad(ProgramValueError)
def leading_dimensions_of_half_bytes_alone(A):
    A: T.Tensor((...,), T.int4)
    with T.Kernel(1):
        A[0] = 0


@bad(ProgramValueError)
def leading_dimensions_beside_a_size_of_that_name(A, B):
    N = T.const("N")
    leading = T.dynamic("leading")
    A: T.Tensor((..., N), T.float32)
    B: T.Tensor((leading,), T.float32)
    with T.Kernel(1):
        A[0, 0] = B[0]


@bad(ProgramValueError)
def leading_dimensions_of_a_view(A):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    B = T.Tensor((..., 2), T.float32, data=A.data)
    with T.Kernel(1):
        B[0, 0] = 0


@bad(ProgramTypeError)
def text_that_is_not_a_dtype_of_an_output(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    return T.empty((M,), "float13")


@bad(ProgramTypeError)
def text_that_is_not_a_dtype_of_an_output_without_parentheses(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    return T.empty(M, "float13")


@bad(ProgramTypeError)
def number_for_the_dtype_of_an_output(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    return T.empty((M,), 3)


@bad(ProgramTypeError)
def dimensions_and_dtype_after_a_shape(A):
    M = T.const("M")
    A: T.Tensor((M,), T.float32)
    return T.empty((M,), 3, T.float32)
