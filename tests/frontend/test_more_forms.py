"""Forms that programs use beside the usual ones: no grid, annotations in a prim_func's body."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.traced import body_of, lines, program_of
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError


def test_a_kernel_without_extents_is_one_block() -> None:
    @tileops.jit
    def one_block(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel():
            for i in T.Parallel(8):
                A[i] += 1.0
        with T.Kernel(threads=32) as bx:
            A[bx] = 5.0

    a = torch.zeros(8)
    one_block(a)
    assert torch.equal(a, torch.tensor([5.0] + [1.0] * 7))


def test_more_than_three_extents_are_refused() -> None:
    def program(A):
        A: T.Tensor((8,), T.float32)
        with T.Kernel(1, 2, 3, 4):
            A[0] = 1.0

    with pytest.raises(ProgramValueError, match="up to 3 grid extents"):
        program_of(program)


def test_a_prim_func_annotated_in_its_body() -> None:
    @T.prim_func
    def doubled(A, n: T.int32, B):
        m = T.dynamic("m")
        A: T.Tensor[[m], T.float32]
        B: T.Tensor((m,), T.float32)
        C = T.empty((m,), T.float32)
        with T.Kernel(T.ceildiv(m, 32)) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] * 2.0 + n
                C[bx * 32 + i] = A[bx * 32 + i]
        return C

    kernel = tileops.compile(doubled, target="cpu")
    a, b = torch.randn(45), torch.empty(45)
    assert torch.equal(kernel(a, 3, b), a)
    assert torch.equal(b, a * 2.0 + 3)


def test_a_prim_func_parameter_annotated_nowhere() -> None:
    with pytest.raises(ProgramTypeError, match="parameter `B` of the prim_func `bare`"):

        @T.prim_func
        def bare(A, B):
            A: T.Tensor((8,), T.float32)
            with T.Kernel(1):
                A[0] = B


def test_strided_tensors_by_subscript() -> None:
    def by_subscript(A):
        n, s = T.dynamic("n, s")
        A: T.StridedTensor[[n, 4], [s, 1], T.float16]
        with T.Kernel(n) as bx:
            A[bx, 0] = 1.0

    def by_call(A):
        n, s = T.dynamic("n, s")
        A: T.StridedTensor((n, 4), (s, 1), T.float16)
        with T.Kernel(n) as bx:
            A[bx, 0] = 1.0

    assert program_of(by_subscript).params[0].buffer == program_of(by_call).params[0].buffer
    with pytest.raises(ProgramTypeError, match="takes a shape, strides and a dtype"):
        T.StridedTensor[4]


def test_an_assumption_about_a_thread_index() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            T.assume(tx < N)
            A[tx] = 1.0

    assert body_of(program) == lines("""
        parallel tx.3 in [32]:
          assume (tx.3 < N.0)
          %A.1[tx.3] = 1.0f32
    """)


def test_a_dtype_without_a_value() -> None:
    with pytest.raises(UnsupportedConstructError, match=r"T.int32\(\) without a value"):
        T.int32()


@pytest.mark.parametrize("annotation", [T.Var, "T.Var", "Var"])
def test_var_is_an_older_name_of_ref(annotation: object) -> None:
    def bump(x, by):
        x += by

    bump.__annotations__ = {"x": annotation, "by": annotation}
    bump = T.macro(bump)

    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(4) as i:
            total = T.alloc_var(T.int32, 0)
            bump(total, i)
            A[i] = total
            assert isinstance(i, T.Var)
            assert not isinstance(3, T.Var)

    assert "%total.3[0] = (%total.3[0] + " in body_of(program)
