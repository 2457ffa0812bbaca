"""Every math function: compiled for each GPU, and within its bound under the interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.kit.interpreted import CUDA, run
from tests.programs import mathematics
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.frontend.trace import trace
from tileops.target import parse_target


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_functions_are_within_their_bounds(dtype: str) -> None:
    torch.manual_seed(3)
    a = mathematics.inputs(getattr(torch, dtype))
    (out,) = run(mathematics.program(dtype), a, compiles=False)
    mathematics.check(a, out)


def test_bits_and_integer_division() -> None:
    a = torch.randint(-(2**31), 2**31 - 1, (128,)).int()
    a[:4] = torch.tensor([0, -1, 2**31 - 1, -(2**31)])
    (out,) = run(mathematics.bits, a)
    assert torch.equal(out, mathematics.bits_expected(a))


@pytest.mark.parametrize(
    ("dtype", "target"), [*(("float32", t) for t in CUDA), ("float64", "cuda:sm_90")]
)
def test_functions_compile(dtype: str, target: str) -> None:
    program = trace(mathematics.program(dtype), name="functions", static={}, consts={})
    built = parse_target(target)
    artifact = compile_kernel(generate(program, built, Specialization()), built, {})
    # The names of the functions stand in the text: no function is replaced by another.
    text = artifact.files["kernel.py"].decode()
    assert all(f".{name}" in text for name in ("exp10(", "log1p(", "tan(", "erf(", "asin("))
    if dtype == "float32":
        # The only hardware sine is one of the fast ones.
        assert "sin.approx" not in artifact.files["launch0.ptx"].decode()
