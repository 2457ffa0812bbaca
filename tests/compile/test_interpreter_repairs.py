"""Each repair of Triton's interpreter is right, and still needed: without it the fault shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.language as T
from tests.kit import interpreted as running
from tileops.codegen.kernel_code import QUOTIENT, KernelCode, KernelParam, LaunchCode
from tileops.dtypes import dtype_of
from tileops.errors import InternalError
from tileops.ir.builder import Builder
from tileops.ir.fold import const
from tileops.ir.program import TensorParam
from tileops.testing.interpreter import interpret

HEAD = """
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel({names}):
"""


def run(body: str, *tensors: torch.Tensor, repaired: bool = True) -> None:
    """Run ``body`` with pointers A, B, C ... to the tensors, which it may write."""
    names = [chr(ord("A") + n) for n in range(len(tensors))]
    builder = Builder("kernel")
    params = []
    for n, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        dtype = dtype_of(tensor.dtype)
        shape = tuple(const(e) for e in tensor.shape)
        builder.params.append(TensorParam(name, builder.new_buffer(name, shape, dtype, "global")))
        params.append(KernelParam(name, "tensor", n, "ptr", str(dtype)))
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = HEAD.format(names=", ".join(names)) + lines
    code = KernelCode("triton", source, (LaunchCode("kernel", tuple(params), const(1)),))
    interpret(code, builder.finish((), returns_tuple=False), *tensors, repaired=repaired)


def outcome(body: str, inputs: tuple[torch.Tensor, ...], out: torch.Tensor, repaired: bool) -> Any:
    """The output, or None where the interpreter refuses."""
    result = out.clone()
    try:
        run(body, *(x.clone() for x in inputs), result, repaired=repaired)
    except InternalError:
        return None
    return result


def check(
    body: str, inputs: tuple[torch.Tensor, ...], out: torch.Tensor, expected: torch.Tensor
) -> None:
    got = outcome(body, inputs, out, repaired=True)
    assert got is not None
    same = torch.equal(got.view(torch.uint8), expected.contiguous().view(torch.uint8))
    assert same, f"got {got}, expected {expected}"
    faulty = outcome(body, inputs, out, repaired=False)
    if faulty is not None:
        matches = torch.equal(faulty.view(torch.uint8), expected.contiguous().view(torch.uint8))
        assert not matches, "Triton's interpreter is right without this repair; remove it"


def test_sum_of_bfloat16_adds_values() -> None:
    a = torch.randint(-9, 10, (4, 8)).bfloat16()
    body = """
x = tl.load(A + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
tl.store(B + tl.arange(0, 4), tl.sum(x, 1))
tl.store(B + 4, tl.sum(x))
"""
    total = torch.cat([a.float().sum(1), a.float().sum().view(1)])
    check(body, (a,), torch.zeros(5).bfloat16(), total.bfloat16())


def test_dot_of_bfloat16_multiplies_values() -> None:
    a = torch.randint(-4, 5, (16, 16)).bfloat16()
    b = torch.randint(-4, 5, (16, 16)).bfloat16()
    body = """
r = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
tl.store(C + r, tl.dot(tl.load(A + r), tl.load(B + r)))
"""
    check(body, (a, b), torch.zeros(16, 16), a.float() @ b.float())


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_casts_round_to_nearest_even(name: str) -> None:
    dtype = getattr(torch, name)
    triton_name = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8e4nv"}.get(name, "float8e5")
    x = torch.randn(1024, generator=torch.Generator().manual_seed(1)) * 3
    x[:6] = torch.tensor([0.0, -0.0, 1.0078125, 1.01171875, 2.0**-8, 300.0])
    body = f"""
r = tl.arange(0, 1024)
tl.store(B + r, tl.load(A + r).to(tl.{triton_name}))
"""
    check(body, (x,), torch.zeros(1024).to(dtype), x.to(dtype))


def test_fp8_casts_saturate_as_the_hardware_does() -> None:
    x = torch.tensor([500.0, -1e9, 448.0, 464.1] * 4)
    body = """
r = tl.arange(0, 16)
tl.store(B + r, tl.load(A + r).to(tl.float8e4nv))
"""
    expected = torch.tensor([448.0, -448.0, 448.0, 448.0] * 4).to(torch.float8_e4m3fn)
    check(body, (x,), torch.zeros(16).to(torch.float8_e4m3fn), expected)


def test_bfloat16_arithmetic_works_on_values() -> None:
    a = torch.tensor([1.0, 2.5, -3.0, 0.125] * 4).bfloat16()
    b = torch.tensor([0.5, -2.5, 100.0, 3.0] * 4).bfloat16()
    body = """
r = tl.arange(0, 16)
tl.store(C + r, tl.load(A + r) + tl.load(B + r))
"""
    check(body, (a, b), torch.zeros(16).bfloat16(), a + b)


def test_bfloat16_atomic_add_works() -> None:
    a = torch.arange(16).bfloat16()
    body = """
r = tl.arange(0, 16)
tl.atomic_add(B + r % 2, tl.load(A + r))
"""
    expected = torch.tensor([1.0 + sum(range(0, 16, 2)), 1.0 + sum(range(1, 16, 2))]).bfloat16()
    check(body, (a,), torch.ones(2).bfloat16(), expected)


@pytest.mark.parametrize("name", ["exp", "tanh", "log1p", "trunc"])
def test_libdevice_functions_exist(name: str) -> None:
    x = torch.linspace(0.1, 3.0, 64)
    body = f"""
r = tl.arange(0, 64)
tl.store(B + r, libdevice.{name}(tl.load(A + r)))
"""
    check(body, (x,), torch.zeros(64), getattr(torch, name)(x.double()).float())


def test_a_scalar_condition_masks_a_tile() -> None:
    x = torch.arange(16.0) + 1
    body = """
r = tl.arange(0, 16)
pid = tl.program_id(0)
tl.store(B + r, tl.load(A + r, mask=pid < 1, other=0.0), mask=pid < 1)
"""
    check(body, (x,), torch.zeros(16), x)


def test_loop_variables_are_int32() -> None:
    body = """
for i in range(-3, 1):
    tl.store(A + i + 3, i // 2)
"""
    # Triton divides towards zero; Python's own integers would give -2, -1, -1, 0.
    check(body, (), torch.zeros(4, dtype=torch.int32), torch.tensor([-1, -1, 0, 0]).int())


@pytest.mark.parametrize("name", ["int32", "uint32", "int64"])
def test_floats_become_integers_as_the_instructions_make_them(name: str) -> None:
    known = [3.7, -3.7, 2.0**31, -(2.0**31), 3e9, -3e9, 2.0**32, 1e30, -1e30, 0.5]
    x = torch.tensor([*known, float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1e6])
    body = f"""
r = tl.arange(0, 16)
tl.store(B + r, tl.load(A + r).to(tl.{name}))
"""
    info = torch.iinfo(getattr(torch, name))
    nan = 0 if name != "int64" else info.min
    expected = [nan if v != v else int(max(info.min, min(v, info.max))) for v in x.tolist()]
    made = torch.tensor(expected).to(getattr(torch, name))
    check(body, (x,), torch.zeros(16, dtype=made.dtype), made)


def test_comparisons_of_bfloat16_are_conditions() -> None:
    a = -torch.arange(16).bfloat16()  # the first is -0.0, which is 0
    body = """
r = tl.arange(0, 16)
tl.store(B + r, (tl.load(A + r) != 0).to(tl.int32))
"""
    check(body, (a,), torch.zeros(16, dtype=torch.int32), (a != 0).int())


def test_float64_becomes_bfloat16_by_one_rounding() -> None:
    """Just above the middle between 1 and the next number, where float32 sees the middle."""
    x = torch.full((16,), 1 + 2.0**-8 + 2.0**-40, dtype=torch.float64)
    x[1::2] *= -1
    body = """
r = tl.arange(0, 16)
tl.store(B + r, tl.load(A + r).to(tl.bfloat16))
"""
    expected = torch.tensor([1 + 2.0**-7, -1 - 2.0**-7] * 8).bfloat16()
    check(body, (x,), torch.zeros(16).bfloat16(), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_become_bfloat16_by_one_rounding(dtype: torch.dtype) -> None:
    x = torch.tensor([2**30 + 2**22 + 1, -(2**30) - 2**22 - 1, 259, 3] * 4, dtype=dtype)
    body = """
r = tl.arange(0, 16)
tl.store(B + r, tl.load(A + r).to(tl.bfloat16))
"""
    expected = torch.tensor([2.0**30 + 2**23, -(2.0**30) - 2**23, 260.0, 3.0] * 4).bfloat16()
    check(body, (x,), torch.zeros(16).bfloat16(), expected)


def test_a_literal_of_bfloat16_is_rounded_once() -> None:
    body = f"""
tl.store(A + tl.arange(0, 4), tl.full((4,), {1 + 2.0**-8 + 2.0**-40!r}, tl.bfloat16))
"""
    check(body, (), torch.zeros(4).bfloat16(), torch.full((4,), 1 + 2.0**-7).bfloat16())


def test_float16_is_cut_where_asked() -> None:
    x = torch.tensor([1 + 2.0**-11, 1 + 2.0**-10 - 2.0**-20, -1e6, 3e-8] * 4)
    body = """
r = tl.arange(0, 16)
tl.store(B + r, tl.load(A + r).to(tl.float16, fp_downcast_rounding="rtz"))
"""
    check(body, (x,), torch.zeros(16).half(), torch.tensor([1.0, 1.0, -65504.0, 0.0] * 4).half())


@pytest.mark.parametrize(
    ("function", "dtype", "given", "cut"),
    [
        (
            "double2float_rz",
            torch.float64,
            [1 + 2.0**-30, -1e300, 2.0**-130],
            [1, -3.4028235e38, 0],
        ),
        ("int2float_rz", torch.int32, [2**31 - 1, -(2**30) - 1, 7], [2**31 - 128, -(2**30), 7]),
        ("uint2float_rz", torch.uint32, [2**32 - 1, 2**24 + 1, 7], [2**32 - 256, 2**24, 7]),
        ("ll2float_rz", torch.int64, [2**63 - 1, -(2**40) - 1, 7], [2**63 - 2**39, -(2**40), 7]),
        ("ull2float_rz", torch.uint64, [2**64 - 1, 2**40 + 1, 7], [2**64 - 2**40, 2**40, 7]),
    ],
)
def test_libdevice_cuts(
    function: str, dtype: torch.dtype, given: list[float], cut: list[float]
) -> None:
    """As compiled with Triton: of float64, what would be a subnormal number becomes zero."""
    body = f"""
r = tl.arange(0, 4)
tl.store(B + r, libdevice.{function}(tl.load(A + r)))
"""
    x = torch.tensor([*given, 0], dtype=dtype)
    check(body, (x,), torch.zeros(4), torch.tensor([*cut, 0], dtype=torch.float32))


def stored(s):
    s: T.float32
    B = T.empty((1,), T.float64)
    with T.Kernel(1, threads=32):
        B[0] = T.cast(s, T.float64)
    return B


def stored_wide(s):
    s: T.float64
    B = T.empty((1,), T.float64)
    with T.Kernel(1, threads=32):
        B[0] = T.cast(s, T.float64)
    return B


@pytest.mark.parametrize(("program", "held"), [(stored, 0.10000000149011612), (stored_wide, 0.1)])
def test_a_float_argument_has_its_dtype(program: Any, held: float) -> None:
    assert running.run(program, 0.1)[0].item() == held


def test_assembly_of_generated_kernels_is_computed() -> None:
    a = torch.linspace(-2.0, 2.0, 16)
    body = f"""
r = tl.arange(0, 16)
a = tl.load(A + r)
found = tl.inline_asm_elementwise({QUOTIENT!r}, "", [a, 3.0, a], tl.float32, True, 4)
tl.store(B + r, found)
"""
    check(body, (a,), torch.zeros(16), a / 3.0)
    with pytest.raises(InternalError, match="does not know the assembly `// a riddle`"):
        run(body.replace(QUOTIENT, "// a riddle"), a, torch.zeros(16))
