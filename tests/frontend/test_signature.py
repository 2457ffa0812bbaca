"""What a function's source says about its call, and how parameters and results enter the program."""

from __future__ import annotations

import inspect
import math

import pytest
import torch

import tileops.language as T
from tests.kit.traced import program_of, text_of
from tests.programs.printed import add_lazy, matmul_relu, matmul_relu_lazy
from tileops.errors import ArgumentError, ArgumentTypeError, ProgramTypeError, ProgramValueError
from tileops.frontend import signature_of, trace, with_out_idx
from tileops.ir.printer import print_program
from tileops.ir.program import ScalarParam
from tileops.ir.verifier import verify


def kinds(func) -> dict[str, str]:
    return {p.name: p.kind for p in signature_of(func).params}


def test_a_function_is_eager_and_its_body_tells_the_kinds_of_its_parameters() -> None:
    def program(A, n, x, block: int = 4, dtype="float16", act=None):
        N = T.const("N")
        A: T.Tensor((N,), dtype)
        n: T.int32
        x: T.float32
        with T.Kernel(n) as bx:
            A[bx] = x

    signature = signature_of(program)
    assert signature.mode == "eager"
    assert kinds(program) == {
        "A": "tensor",
        "n": "scalar",
        "x": "scalar",
        "block": "static",
        "dtype": "static",
        "act": "static",
    }
    n = signature.params[1]
    assert (n.annotation, n.default) == ("int32", inspect.Parameter.empty)
    assert signature.params[3].annotation is int
    scalars = [p for p in program_of(program).params if isinstance(p, ScalarParam)]
    assert [(p.name, p.var.dtype) for p in scalars] == [("n", "int32"), ("x", "float32")]


def test_tensors_may_be_annotated_in_the_signature() -> None:
    def program(A: T.Tensor((64,), T.float16), B: T.Tensor[[64], T.float32], n: T.int64):
        with T.Kernel(1) as bx:
            B[bx] = A[bx] + n

    assert kinds(program) == {"A": "tensor", "B": "tensor", "n": "scalar"}
    assert "tensor %A.0: f16[64] global\ntensor %B.1: f32[64] global\nscalar n.2: i64" in text_of(
        program
    )


def test_a_function_with_an_inner_prim_func_is_lazy() -> None:
    assert signature_of(matmul_relu_lazy).mode == "lazy"
    assert set(kinds(matmul_relu_lazy).values()) == {"static"}


def test_a_function_that_returns_what_another_builds_is_lazy() -> None:
    def program(M, N):
        return matmul_relu_lazy(M, N, 64)

    assert signature_of(program).mode == "lazy"


def test_the_signature_never_runs_the_function() -> None:
    def program(A):
        raise AssertionError("ran")
        T.const("N")

    assert signature_of(program).mode == "eager"


def test_parameters_keep_the_order_of_the_signature() -> None:
    def program(B, A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B: T.Tensor((N,), T.float32)
        with T.Kernel(1) as bx:
            B[bx] = A[bx]

    assert [p.name for p in program_of(program).params] == ["B", "A"]


def test_outputs_follow_the_parameters_and_are_returned_in_the_users_order() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        C = T.empty((N,), T.float16)
        D = T.empty(N, 2, dtype="int8")
        with T.Kernel(1) as bx:
            C[bx] = A[bx]
            D[bx, 0] = 1
        return D, C

    program_ = program_of(program)
    assert [(p.name, p.allocated) for p in program_.tensors()] == [
        ("A", False),
        ("C", True),
        ("D", True),
    ]
    assert (program_.returns, program_.returns_tuple) == ((2, 1), True)


def test_a_missing_optional_tensor_leaves_the_program() -> None:
    def program(A, bias):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        if bias is not None:
            bias: T.Tensor((N,), T.float32)
        with T.Kernel(1) as bx:
            A[bx] = A[bx] if bias is None else A[bx] + bias[bx]

    with_bias = trace(program, name="p", static={}, consts=None)
    without = trace(program, name="p", static={"bias": None}, consts=None)
    assert [p.name for p in with_bias.params] == ["A", "bias"]
    assert [p.name for p in without.params] == ["A"]


def test_a_value_for_a_size_constant_must_be_given() -> None:
    with pytest.raises(ProgramValueError, match="size constant `K`"):
        trace(matmul_relu, name="m", static={}, consts={"M": 1, "N": 1})


def test_an_unknown_compile_time_parameter_is_refused() -> None:
    with pytest.raises(ProgramTypeError, match="no compile-time parameter block_Q"):
        trace(matmul_relu, name="m", static={"block_Q": 3}, consts=None)


def test_the_dtypes_of_torch_numpy_and_text_are_all_accepted() -> None:
    import numpy as np

    for spelling in (torch.bfloat16, "bfloat16", T.bfloat16):

        def program(A, dtype):
            N = T.const("N")
            A: T.Tensor((N,), dtype)
            with T.Kernel(1) as bx:
                A[bx] = 0

        assert "bf16[N.0]" in text_of(program, dtype=spelling)
    assert T.dtype(np.float16) == T.float16 == "float16"
    assert isinstance(T.float16, str)


def test_a_body_that_needs_the_number_of_a_size_still_has_a_symbolic_signature() -> None:
    """Python arithmetic on a size cannot be recorded; the signature and the writes are still found."""

    def program(A, B):
        N, D = T.const("N, D")
        A: T.Tensor((N, D), T.float32)
        B: T.Tensor((N, D), T.float32)
        C = T.empty((N, D), T.float32)
        with T.Kernel(N) as bx:
            parts = [T.alloc_fragment((4,), T.float32) for _ in range(D // 4)]
            for part in range(2):
                B[bx, part] = A[bx, part]
            T.copy(parts[0], C[bx, 0])
        return C

    symbolic = trace(program, name="p", static={}, consts=None)
    verify(symbolic)
    text = print_program(symbolic)
    assert "size D.1: i32 const" in text
    written = {line.split("%")[1].split(".")[0] for line in text.splitlines() if "fill" in line}
    assert written == {"B", "C"}
    assert text_of(program, {"N": 3, "D": 8}).count("alloc %") == 2


def test_true_division_of_size_constants_is_pythons() -> None:
    def program(A):
        N, D = T.const("N, D")
        A: T.Tensor((N, D), T.float32)
        scale = 1 / D
        with T.Kernel(N) as bx:
            A[bx, 0] *= scale

    assert "(1.0f32 / f32(D.1))" in text_of(program)
    assert "* 0.25f32" in text_of(program, {"N": 2, "D": 4})


def test_python_arithmetic_on_a_size_constant_of_the_signature_says_what_to_use() -> None:
    def program(A):
        D = T.const("D")
        A: T.Tensor((D,), T.float32)
        root = int(math.sqrt(D))
        B = T.empty((root,), T.float32)
        with T.Kernel(1) as bx:
            B[bx] = A[bx]
        return B

    with pytest.raises(ProgramTypeError, match=r"T\.sqrt"):
        text_of(program)


# -- lazy programs -----------------------------------------------------------------------------------
def test_out_idx_turns_parameters_into_results() -> None:
    program = with_out_idx(matmul_relu_lazy(256, 256, 64).program, [-1])
    verify(program)
    assert program.returns == (2,)
    assert not program.returns_tuple
    with pytest.raises(ArgumentError, match="out_idx 3"):
        with_out_idx(matmul_relu_lazy(256, 256, 64).program, 3)


def test_a_prim_func_is_traced_at_its_definition_with_the_closure_of_that_moment() -> None:
    made = []
    for block in (32, 64):

        @T.prim_func
        def main(A: T.Tensor((128,), T.float32)):
            with T.Kernel(128 // block) as bx:  # noqa: B023 - the point of the test
                A[bx * block] = block  # noqa: B023

        made.append(main)
    assert "launch bx.1 in [4]" in made[0].script()
    assert "launch bx.1 in [2]" in made[1].script()
    assert made[0].name == "main"


def test_a_prim_func_cannot_be_called() -> None:
    with pytest.raises(ArgumentTypeError, match=r"tileops\.compile\(add\)"):
        add_lazy()(1, 2, 3)


def test_dynamic_sizes_made_outside_a_program_belong_to_each_program_that_uses_them() -> None:
    first, second = add_lazy(), add_lazy()
    assert first.script() == second.script()
    assert "size N.0: i32 dynamic" in first.script()


def test_a_prim_func_may_return_what_it_allocates() -> None:
    @T.prim_func
    def main(A: T.Tensor((8,), T.float32), n: T.int32, m: int, step=2):
        C = T.empty((8,), T.float32)
        with T.Kernel(n) as bx:
            C[bx] = A[bx] * step
        return C

    assert main.program.returns == (3,)
    assert [(s.name, s.var.dtype) for s in main.program.scalars()] == [
        ("n", "int32"),
        ("m", "int32"),
    ]
