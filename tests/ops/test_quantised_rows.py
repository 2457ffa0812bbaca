"""Norms and gates in 8 bits: the rule of scales and roundings, special rows, errors, machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kit.schedules import HOPPER
from tests.ops.recorded import recorded
from tileops import ops
from tileops.codegen import gpu
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.errors import ArgumentError, ArgumentTypeError, NotDifferentiableError
from tileops.ops.programs import quantised_rows as programs

X, W = torch.randn(4, 6), torch.randn(6)
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0}
# Half the distance of two numbers: of the number, and of the smallest one with a full fraction.
HALF_UNITS = {torch.float8_e4m3fn: (2**-4, 2**-10), torch.float8_e5m2: (2**-3, 2**-17)}
DTYPES = pytest.mark.parametrize("dtype", LARGEST, ids=str)
NAN, INF = float("nan"), float("inf")


def expected(
    rows: torch.Tensor, dtype: torch.dtype, given: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rule of the documents, in torch operations."""
    if given is None:
        top = torch.tensor([[float(torch.amax(row.abs())) if len(row) else 0] for row in rows])
        scale = (top / LARGEST[dtype]).reshape(-1, 1)
        scale = torch.where(scale == 0, 1.0, scale)
    else:
        scale = given
    quotient = (rows.float() / scale).clamp(-LARGEST[dtype], LARGEST[dtype])
    if dtype == torch.int8:
        quotient = torch.where(quotient.isnan(), 0.0, quotient.round())
    return quotient.to(dtype), scale


def require_equal(found: Any, right: Any) -> None:
    for a, b in zip(found, right, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        assert torch.equal(a.float().nan_to_num(-7.5), b.float().nan_to_num(-7.5))
        assert torch.equal(a.isnan(), b.isnan())


def rows_of(columns: int) -> torch.Tensor:
    """Rows of which some are of zeros, small, or have special elements."""
    x = torch.randn(6, columns).bfloat16()
    x[1] = 0
    x[2] *= 1e-30
    if columns:
        x[3, columns // 2] = NAN
        x[4, columns // 2] = -INF
    return x


@DTYPES
@pytest.mark.parametrize("columns", [0, 1, 6, 131, 16384 + 13])
@pytest.mark.parametrize("given", [None, 1.0, 1e-3], ids=["rows", "one", "saturated"])
def test_the_rule(dtype: torch.dtype, columns: int, given: float | None) -> None:
    """The results are those of the operator without quantisation, quantised."""
    x, up, w = rows_of(columns), torch.randn(6, columns).bfloat16(), torch.randn(columns)
    scale = None if given is None else torch.tensor(given)
    norm = ops.rms_norm(x, (columns,), w, 1e-6)
    found = ops.rms_norm_quant(x, (columns,), w, 1e-6, scale=scale, out_dtype=dtype)
    require_equal(found, expected(norm, dtype, scale))
    found = ops.silu_mul_quant(x, up, scale=scale, out_dtype=dtype)
    require_equal(found, expected(ops.silu_mul(x, up), dtype, scale))


@DTYPES
@pytest.mark.parametrize("wide", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_product_with_the_scale_is_the_norm(dtype: torch.dtype, wide: torch.dtype) -> None:
    """Beside half a unit of 8 bits there is the rounding of the norm: half a unit, or a few."""
    x, w = torch.randn(33, 131).to(wide), torch.rand(131)
    exact = torch.nn.functional.rms_norm(x.double(), (131,), w.double(), 1e-6)
    out, scale = ops.rms_norm_quant(x, (131,), w, 1e-6, out_dtype=dtype)
    error = (out.double() * scale - exact).abs()
    allowed = 8 * max(torch.finfo(wide).eps, 2**-23) * exact.abs()
    if dtype == torch.int8:
        allowed = allowed + 0.5 * scale
    else:
        relative, smallest = HALF_UNITS[dtype]
        allowed = allowed + torch.maximum(relative * exact.abs(), smallest * scale)
    assert (error <= allowed).all()


def test_ties_go_to_even_and_int8_is_symmetrical() -> None:
    up = torch.tensor([[0.5, 1.5, 2.5, -2.5, 126.5, 127.5, -128.0, 1e9]])
    gate = torch.full_like(up, 64.0)  # its sigmoid is 1 in float32
    out, _ = ops.silu_mul_quant(gate, up, scale=torch.tensor([64.0]), out_dtype=torch.int8)
    assert out.tolist() == [[0, 2, 2, -2, 126, 127, -127, 127]]


def test_roundings_and_offsets_are_those_of_the_norm() -> None:
    x = X.bfloat16()
    for options in ({"rounding": "llama"}, {"weight_offset": 1.0}):
        norm = ops.rms_norm(x, (6,), W, 1e-6, **options)
        found = ops.rms_norm_quant(x, (6,), W, 1e-6, **options)
        require_equal(found, expected(norm, torch.float8_e4m3fn, None))


def test_shapes() -> None:
    x = torch.randn(2, 3, 4, 5)
    out, scale = ops.rms_norm_quant(x, (4, 5))
    assert out.shape == x.shape
    assert scale.shape == (2, 3, 1)
    out, scale = ops.silu_mul_quant(x[..., ::2], x[..., ::2].expand(2, 3, 4, 3))
    assert out.shape == (2, 3, 4, 3)
    assert scale.shape == (2, 3, 4, 1)
    out, scale = ops.silu_mul_quant(x[:0], x[:0])
    assert (out.shape, scale.shape) == ((0, 3, 4, 5), (0, 3, 4, 1))
    given = torch.ones(1, 1)
    assert ops.silu_mul_quant(X, X, scale=given)[1] is given


def test_graphs() -> None:
    """Compiled for any number of rows, and exported."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *ops.rms_norm_quant(x, (6,), eps=1e-6), *ops.silu_mul_quant(x, x)

    torch._dynamo.reset()
    rows = torch.export.Dim("rows")
    for mode in ("opaque", "decompose"):
        with ops.compile_mode(mode):
            compiled = torch.compile(both, fullgraph=True, dynamic=True, backend="aot_eager")
            for count in (4, 7):
                x = torch.randn(count, 6)
                found = compiled(x)
                if mode == "opaque":
                    require_equal(found, both(x))
                for a, b in zip(found, both(x), strict=True):  # an element may be the next number
                    torch.testing.assert_close(a.float(), b.float(), rtol=2**-3, atol=2**-9)

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return both(x)

    with ops.compile_mode("opaque"):
        exported = torch.export.export(Module(), (X,), dynamic_shapes=({0: rows},))
    x = torch.randn(9, 6)
    require_equal(exported.module()(x), both(x))


NAMED = pytest.mark.parametrize("name", ["rms_norm_quant", "silu_mul_quant"])


def called(name: str, x: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if name == "rms_norm_quant":
        return ops.rms_norm_quant(x, x.shape[-1:], eps=1e-6, **options)
    return ops.silu_mul_quant(x, x, **options)


@NAMED
@pytest.mark.parametrize("scale", [None, torch.tensor([0.5])], ids=["rows", "given"])
def test_opcheck(name: str, scale: torch.Tensor | None) -> None:
    (call,) = recorded(lambda: called(name, X, scale=scale, out_dtype=torch.int8), (), {})
    assert call.name == name
    torch.library.opcheck(call.op, call.arguments, call.options)


@NAMED
def test_transforms(name: str) -> None:
    """Of a batch, and under autocast, which leaves the dtypes alone."""
    batch = torch.randn(4, 3, 6)
    mapped = torch.vmap(lambda x: called(name, x), in_dims=1)(batch)
    each = [called(name, batch[:, n]) for n in range(3)]
    require_equal(mapped, [torch.stack(parts) for parts in zip(*each, strict=True)])
    right = called(name, X)
    with torch.autocast("cpu", torch.bfloat16):
        require_equal(called(name, X), right)
    second = (6,) if name == "rms_norm_quant" else X
    explained = ops.why(getattr(ops, name), X, second)
    assert [p.program for p in explained.programs] == [name]
    assert explained.programs[0].config["columns"] == 6


def test_gradients_are_refused() -> None:
    leaf = X.clone().requires_grad_()
    for out in (ops.rms_norm_quant(leaf, (6,))[1], ops.silu_mul_quant(leaf, leaf)[1]):
        with pytest.raises(NotDifferentiableError, match="_quant"):
            out.sum().backward()


@pytest.mark.parametrize("columns", [2880, 4096, 14336, 28672])
@pytest.mark.parametrize("dtype", list(programs.LARGEST))
def test_registers_on_hopper(columns: int, dtype: str) -> None:
    """A row stays in registers: none is kept in memory."""

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")

    x = empty(512, columns)
    for made in (
        programs.rms_norm_quant.get_tir(x, empty(columns), dtype=dtype),
        programs.silu_mul_quant.get_tir(x, x, dtype=dtype),
    ):
        code = gpu.generate(made, HOPPER, Specialization(fast=True))
        assert compile_kernel(code, HOPPER, {}).launches[0].spills == 0


ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.rms_norm_quant(X, (5,)), ArgumentError, r"rms_norm_quant: normalized_shape: .*5,"),
        (lambda: ops.rms_norm_quant(X.int(), (6,)), ArgumentTypeError, "rms_norm_quant: input: .* int32"),
        (lambda: ops.rms_norm_quant(X, (6,), W[:2]), ArgumentError, r"weight: .* \(6,\), got \(2,\)"),
        (lambda: ops.rms_norm_quant(X, (6,), rounding="up"), ArgumentError, "rounding: .* got 'up'"),
        (lambda: ops.rms_norm_quant(X, (6,), out_dtype=torch.int32), ArgumentError,
         "rms_norm_quant: out_dtype: expected one of float8_e4m3fn, float8_e5m2, int8, got torch.int32"),
        (lambda: ops.rms_norm_quant(X, (6,), scale=2.0), ArgumentTypeError, "scale: .* tensor, got float"),
        (lambda: ops.silu_mul_quant(X, X, scale=ONE.double()), ArgumentTypeError,
         "silu_mul_quant: scale: expected float32, got float64"),
        (lambda: ops.silu_mul_quant(X, X, scale=W), ArgumentError, r"scale: .* one element, got \(6,\)"),
        (lambda: ops.silu_mul_quant(X, X[:2]), ArgumentError, "silu_mul_quant: up: .* shape of gate"),
        (lambda: ops.silu_mul_quant(ONE[0], ONE[0]), ArgumentError, "gate: .* got a number"),
        (lambda: programs.silu_mul_quant(X, X, dtype="int4"), ArgumentError, "dtype: .* got 'int4'"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
