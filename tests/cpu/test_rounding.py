"""T.ieee_*: every operation in every rounding mode, bit for bit against exact fractions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.harness import build_eager
from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.interpreter.rounding import rounded

OPERATIONS = {
    "ieee_add": ("add", 2), "ieee_sub": ("sub", 2), "ieee_mul": ("mul", 2), "ieee_fdiv": ("div", 2),
    "ieee_fmaf": ("fma", 3), "ieee_fsqrt": ("sqrt", 1), "ieee_frcp": ("div", 1),
}  # fmt: skip


def operate(A, B, C, name: str, mode: str, count: int, dtype: str):
    N = T.const("N")
    A: T.Tensor((N,), dtype)
    B: T.Tensor((N,), dtype)
    C: T.Tensor((N,), dtype)
    Y = T.empty((N,), dtype)
    with T.Kernel(T.ceildiv(N, 64), threads=32) as bx:
        for i in T.Parallel(64):
            args = (A[bx * 64 + i], B[bx * 64 + i], C[bx * 64 + i])[:count]
            Y[bx * 64 + i] = getattr(T, name)(*args, rounding_mode=mode)
    return Y


def operands(dtype: np.dtype) -> list[np.ndarray]:
    """Random values near each other and far apart, and every pair of special ones."""
    info = np.finfo(dtype)
    special = [0.0, 1.0, 1.5, info.tiny, info.smallest_subnormal, info.max, info.eps, np.inf]
    special = np.array([*special, *(-v for v in special), np.nan], dtype)
    pairs = np.stack(np.meshgrid(special, special), 0).reshape(2, -1)
    rng = np.random.default_rng()
    near = rng.standard_normal((2, 200))
    far = near * 2.0 ** rng.integers(-120, 121, (2, 200))
    tiny = rng.standard_normal((2, 60)) * float(info.tiny)
    a, b = np.concatenate([pairs, near, far, tiny], 1).astype(dtype)
    with np.errstate(all="ignore"):
        c = np.where(rng.random(a.size) < 0.5, -(a * b), rng.permutation(a)).astype(dtype)
    return [a, b, c]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "ru", "rd"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_in_every_mode(name: str, mode: str, dtype: str) -> None:
    op, count = OPERATIONS[name]
    inputs = operands(np.dtype(dtype))
    tensors = [torch.from_numpy(x) for x in inputs]
    static = {"name": name, "mode": mode, "count": count, "dtype": dtype}
    got = build_eager(operate, consts={"N": tensors[0].numel()}, **static)(*tensors).numpy()
    args = [np.ones_like(inputs[0]), inputs[0]] if name == "ieee_frcp" else inputs[:count]
    want = rounded(f"{op}_{mode}")(*args)
    same = (got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}")) | (
        np.isnan(got) & np.isnan(want)
    )
    assert same.all(), [(*(x[~same][:3] for x in args), got[~same][:3], want[~same][:3])]


def test_reciprocal_square_roots() -> None:
    rng = np.random.default_rng()
    x = np.abs(rng.standard_normal(3000) * 2.0 ** rng.integers(-130, 120, 3000)).astype(np.float32)
    x = np.concatenate([x, np.array([0.0, np.inf, np.nan, -1.0, 1e-45, 1.0, 4.0], np.float32)])
    tensor = torch.from_numpy(x)
    static = {"name": "ieee_frsqrt", "mode": "rn", "count": 1, "dtype": "float32"}
    run = build_eager(operate, consts={"N": x.size}, **static)
    got = run(tensor, tensor, tensor).numpy()
    np.testing.assert_array_equal(got, rounded("rsqrt_rn")(x))


def test_what_is_refused() -> None:
    def program(A, name, mode, dtype):
        A: T.Tensor((8,), dtype)
        with T.Kernel(1) as bx:
            A[bx] = getattr(T, name)(A[bx], rounding_mode=mode)

    def refuse(error: type[Exception], text: str, **static: str) -> None:
        with pytest.raises(error, match=text):
            tileops.jit(program).get_tir(torch.zeros(8), **static)

    refuse(ProgramValueError, "'up'", name="ieee_fsqrt", mode="up", dtype="float32")
    refuse(UnsupportedConstructError, "narrower", name="ieee_fsqrt", mode="rz", dtype="float16")
    refuse(
        UnsupportedConstructError, "at most float32", name="ieee_frsqrt", mode="rn", dtype="float64"
    )
    refuse(
        UnsupportedConstructError, "at most float32", name="ieee_frsqrt", mode="ru", dtype="float32"
    )
