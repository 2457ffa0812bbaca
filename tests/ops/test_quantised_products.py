"""Products of 8-bit floats and by 4-bit weights: exactness, scales, packing, errors, machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.kit.schedules import HOPPER
from tests.ops.recorded import checks_of, recorded
from tileops import ops
from tileops.codegen import gpu
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.compiler import compile_kernel
from tileops.errors import ArgumentError, ArgumentTypeError, NotDifferentiableError
from tileops.ops.programs import quantised_products as programs

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
RESULTS = (torch.bfloat16, torch.float16, torch.float32, E4M3, E5M2)


def operands(
    rows: int, columns: int, terms: int, a: torch.dtype = E4M3, b: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, terms).to(a), torch.randn(columns, terms).to(b).t()


def scales(rows: int, columns: int, by_row: bool) -> tuple[torch.Tensor, torch.Tensor]:
    shapes = ((rows, 1), (1, columns)) if by_row else ((1,), (1,))
    return torch.rand(shapes[0]) / 8 + 0.1, torch.rand(shapes[1]) + 0.5


def exact(a: torch.Tensor, b: torch.Tensor, scale_a: Any, scale_b: Any) -> torch.Tensor:
    return (a.double() @ b.double()) * scale_a.double() * scale_b.double()


def require_near(found: torch.Tensor, right: torch.Tensor, terms: int, sizes: Any = 0.0) -> None:
    """Within half a unit of the result's dtype, and the roundings of a float32 sum of its terms.

    A sum of n terms is off by at most n units of the sum of the terms' absolute values, ``sizes``.
    """
    info = torch.finfo(found.dtype)
    bound = info.eps / 2 * right.abs() + info.smallest_normal * info.eps
    assert ((found.double() - right).abs() <= 1.01 * bound + (terms + 8) * 2**-24 * sizes).all()


@pytest.mark.parametrize(
    ("a", "b", "by_row", "out_dtype"),
    [
        (E4M3, E4M3, False, torch.bfloat16),
        (E4M3, E5M2, True, torch.float16),
        (E5M2, E4M3, False, torch.float32),
        (E5M2, E5M2, True, E4M3),
        (E4M3, E4M3, True, E5M2),
    ],
    ids=str,
)
def test_scaled_mm(a: torch.dtype, b: torch.dtype, by_row: bool, out_dtype: torch.dtype) -> None:
    for rows, columns, terms in ((33, 70, 300), (1, 1, 1), (70, 16, 131)):
        x, y = operands(rows, columns, terms, a, b)
        given = scales(rows, columns, by_row)
        right = exact(x, y, *given)
        if out_dtype in LARGEST:
            right = right.clamp(-LARGEST[out_dtype], LARGEST[out_dtype])
        sizes = exact(x.double().abs(), y.double().abs(), *given)
        for fast in (False, True):
            found = ops.scaled_mm(x, y, *given, out_dtype=out_dtype, use_fast_accum=fast)
            assert found.dtype == out_dtype
            require_near(found, right, terms, sizes)


@pytest.mark.parametrize("by_row", [False, True], ids=["one", "rows"])
def test_scaled_mm_is_torchs(by_row: bool) -> None:
    """The arguments of torch's function, in its order; both round a float32 sum once."""
    x, y = operands(32, 64, 48)
    given = scales(32, 64, by_row)
    bias = torch.randn(64).bfloat16()
    found, torchs = (
        f(x, y, *given, bias, None, torch.bfloat16, False)
        for f in (ops.scaled_mm, torch._scaled_mm)
    )
    torch.testing.assert_close(found, torchs, rtol=2**-7, atol=2**-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_bias_comes_after_the_scales(dtype: torch.dtype) -> None:
    x, y = operands(5, 9, 16)
    given, bias = scales(5, 9, True), torch.randn(9).to(dtype)
    found = ops.scaled_mm(x, y, *given, bias, out_dtype=torch.float32)
    right = exact(x, y, *given) + bias.double()
    sizes = exact(x.double().abs(), y.double().abs(), *given) + bias.double().abs()
    require_near(found, right, 17, sizes)


def test_results_of_8_bits() -> None:
    """They have the dtype of the first operand, are scaled last, and saturate."""
    x, y = torch.full((2, 4), 8.0).to(E4M3), torch.full((3, 4), 8.0).to(E4M3).t()
    minus = torch.full((3, 4), -8.0).to(E4M3).t()
    one = torch.ones(())
    assert ops.scaled_mm(x, y, one, one).dtype == E4M3
    assert ops.scaled_mm(x, y, one, one).float().unique().tolist() == [256.0]
    bias = torch.full((3,), 256.0)
    half = torch.tensor([0.5])
    assert ops.scaled_mm(x, y, one, one, bias, half).float().unique().tolist() == [256.0]
    assert ops.scaled_mm(x, y, one, one, bias).float().unique().tolist() == [448.0]
    assert ops.scaled_mm(x, minus, one, one * 4).float().unique().tolist() == [-448.0]


def test_layouts_and_no_elements() -> None:
    x, y = operands(5, 9, 16)
    one = torch.ones(1)
    right = ops.scaled_mm(x, y, one, one)
    for a, b in ((x, y.contiguous()), (x.t().contiguous().t(), y)):
        assert torch.equal(ops.scaled_mm(a, b, one, one).float(), right.float())
    assert ops.scaled_mm(x[:0], y, one, one).shape == (0, 9)
    assert ops.scaled_mm(x, y[:, :0], one, one).shape == (5, 0)
    none = ops.scaled_mm(x[:, :0], y[:0], one, one, out_dtype=torch.float32)
    assert torch.equal(none, torch.zeros(5, 9))


def test_not_a_number_stays_in_its_row() -> None:
    x, y = operands(3, 4, 16)
    x[1, 2] = float("nan")
    one = torch.ones(1)
    for dtype in RESULTS:
        found = ops.scaled_mm(x, y, one, one, out_dtype=dtype).isnan()
        assert found.all(1).tolist() == [False, True, False]
        assert found.any(1).tolist() == [False, True, False]


# -- 4-bit weights -----------------------------------------------------------------------------
def weights(features: int, columns: int, group: int, dtype: torch.dtype) -> tuple[Any, ...]:
    codes = torch.randint(0, 16, (features, columns))
    groups = -(-columns // group)
    scale = (torch.rand(features, groups) + 0.5).to(dtype)
    return codes, ops.pack_int4(codes), scale, torch.randint(0, 16, (features, groups)).to(dtype)


def dense(codes: Any, scale: Any, zeros: Any, group: int, dtype: torch.dtype) -> torch.Tensor:
    """Each weight by itself."""
    made = torch.empty(codes.shape, dtype=torch.float64)
    for column in range(codes.shape[1]):
        zero = 8 if zeros is None else zeros[:, column // group].double()
        made[:, column] = (codes[:, column] - zero) * scale[:, column // group].double()
    return made.to(dtype)


@pytest.mark.parametrize(
    ("rows", "features", "columns", "group"),
    [(33, 70, 300, 32), (3, 33, 131, 64), (1, 1, 1, 2), (16, 40, 257, 256)],
)  # fmt: skip
@pytest.mark.parametrize(
    ("dtype", "has_zeros"),
    [(torch.float16, True), (torch.bfloat16, False), (torch.float32, True), (torch.float64, False)],
    ids=str,
)
def test_int4_linear(
    rows: int, features: int, columns: int, group: int, dtype: torch.dtype, has_zeros: bool
) -> None:
    """Against the products by the rounded weights, which float64 has without loss."""
    codes, packed, scale, zeros = weights(features, columns, group, torch.bfloat16)
    zeros = zeros if has_zeros else None
    x, bias = torch.randn(2, rows, columns).to(dtype), torch.randn(features).to(dtype)
    w = dense(codes, scale, zeros, group, dtype).double()
    right = x.double() @ w.t() + bias.double()
    found = ops.int4_linear(x, packed, scale, zeros, bias, group_size=group)
    if dtype == torch.float64:
        torch.testing.assert_close(found, right)
    else:
        require_near(
            found, right, columns + 1, x.double().abs() @ w.abs().t() + bias.double().abs()
        )


@pytest.mark.parametrize("columns", [0, 1, 4, 7])
def test_packing(columns: int) -> None:
    codes = torch.randint(0, 16, (2, 3, columns))
    packed = ops.pack_int4(codes)
    assert packed.dtype == torch.uint8
    assert packed.shape == (2, 3, (columns + 1) // 2)
    for k in range(columns):
        assert torch.equal((packed[..., k // 2] >> 4 * (k % 2)) & 15, codes[..., k].to(torch.uint8))
    assert torch.equal(ops.pack_int4(codes.to(torch.int8) - 16), packed)  # the lowest four bits


def test_layouts_of_int4_linear() -> None:
    _, packed, scale, zeros = weights(9, 12, 4, torch.float32)
    x = torch.randn(5, 12)
    right = ops.int4_linear(x, packed, scale, zeros, group_size=4)
    wide = torch.stack((x, x), -1).flatten(-2)
    transposed = [t.t().contiguous().t() for t in (packed, scale, zeros)]
    assert torch.equal(ops.int4_linear(wide[:, ::2], *transposed, group_size=4), right)
    each = ops.int4_linear(x[0].expand(2, 3, 12), packed, scale, zeros, group_size=4)
    assert torch.equal(each, right[0].expand(2, 3, 9))
    assert torch.equal(ops.int4_linear(x[0], packed, scale, zeros, group_size=4), right[0])
    assert ops.int4_linear(x[:0], packed, scale, zeros, group_size=4).shape == (0, 9)
    none = ops.int4_linear(x[:, :0], packed[:, :0], scale[:, :0], None, scale[:, 0], group_size=4)
    assert torch.equal(none, scale[:, 0].expand(5, 9))


@pytest.mark.parametrize("columns", [12, 300])
def test_a_bad_scale_stays_in_its_feature(columns: int) -> None:
    codes, packed, scale, _ = weights(5, columns, 128, torch.float32)
    codes[:], packed[:] = 9, 9 * 17
    scale[3, -1], scale[4, -1] = float("nan"), float("inf")
    for rows in (1, 40):
        found = ops.int4_linear(torch.ones(rows, columns), packed, scale, group_size=128)
        assert found[:, :3].isfinite().all()
        assert found[:, 3].isnan().all()
        assert (found[:, 4] == float("inf")).all()


def test_autocast_lowers_the_activations() -> None:
    _, packed, scale, zeros = weights(9, 12, 4, torch.float32)
    x, bias = torch.randn(5, 12), torch.randn(9)
    with torch.autocast("cpu", torch.bfloat16):
        found = ops.int4_linear(x, packed, scale, zeros, bias, group_size=4)
    lower = ops.int4_linear(x.bfloat16(), packed, scale, zeros, bias.bfloat16(), group_size=4)
    assert torch.equal(found, lower)


# -- graphs, counts, machine code --------------------------------------------------------------
def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Products of ``x`` by fixed matrices."""
    y = (torch.arange(12 * 9) % 7 - 3.0).view(9, 12)
    codes = torch.arange(12 * 9).view(9, 12)
    one = torch.ones(1)
    mm = ops.scaled_mm(x.to(E4M3), y.to(E4M3).t(), one, one, out_dtype=torch.float32)
    return mm, ops.int4_linear(x, ops.pack_int4(codes), torch.ones(9, 3), group_size=4)


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return both(x)


def test_graphs() -> None:
    """Compiled for any number of rows, and exported."""
    torch._dynamo.reset()
    for mode in ("opaque", "decompose"):
        with ops.compile_mode(mode):
            compiled = torch.compile(both, fullgraph=True, dynamic=True, backend="aot_eager")
            for count in (4, 7, 70):
                x = torch.randn(count, 12)
                for a, b in zip(compiled(x), both(x), strict=True):
                    torch.testing.assert_close(a, b)
    rows = torch.export.Dim("rows")
    exported = torch.export.export(Module(), (torch.randn(4, 12),), dynamic_shapes=({0: rows},))
    for count in (1, 9, 200):
        x = torch.randn(count, 12)
        for a, b in zip(exported.module()(x), both(x), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("by_row", [False, True], ids=["one", "rows"])
def test_opcheck_of_scaled_mm(by_row: bool) -> None:
    given = (*operands(5, 9, 16), *scales(5, 9, by_row), torch.randn(9))
    (call,) = recorded(lambda: ops.scaled_mm(*given, out_dtype=torch.bfloat16), (), {})
    checks = checks_of(call.arguments)
    torch.library.opcheck(call.op, call.arguments, call.options, test_utils=checks)


@pytest.mark.parametrize("has_zeros", [False, True], ids=["symmetrical", "zeros"])
def test_opcheck_of_int4_linear(has_zeros: bool) -> None:
    _, packed, scale, zeros = weights(9, 12, 4, torch.float32)
    given = (torch.randn(2, 5, 12), packed, scale, zeros if has_zeros else None)
    (call,) = recorded(lambda: ops.int4_linear(*given, group_size=4), (), {})
    torch.library.opcheck(call.op, call.arguments, call.options)


def test_vmap() -> None:
    _, packed, scale, zeros = weights(9, 12, 4, torch.float32)
    batch, one = torch.randn(5, 3, 12), torch.ones(1)
    _, b = operands(5, 9, 12)

    def linear(x: torch.Tensor) -> torch.Tensor:
        return ops.int4_linear(x, packed, scale, zeros, group_size=4)

    def product(x: torch.Tensor) -> torch.Tensor:
        return ops.scaled_mm(x, b, one, one, out_dtype=torch.float32)

    for call, given in ((linear, batch), (product, batch.to(E4M3))):
        each = torch.stack([call(given[:, n]) for n in range(3)])
        assert torch.equal(torch.vmap(call, in_dims=1)(given), each)


def test_why() -> None:
    one = torch.ones(1)
    (choice,) = ops.why(ops.scaled_mm, *operands(5, 9, 16), one, one).programs
    assert (choice.program, choice.config["rows"]) == ("scaled_mm", programs.FEW_ROWS)
    _, packed, scale, _ = weights(9, 12, 4, torch.float32)
    (choice,) = ops.why(ops.int4_linear, torch.randn(5, 12), packed, scale, group_size=4).programs
    assert (choice.program, choice.config["terms"]) == ("int4_linear", 32)


def test_flops() -> None:
    with FlopCounterMode(display=False) as counter:
        both(torch.randn(5, 12))
    assert counter.get_total_flops() == 2 * 2 * 5 * 12 * 9


def test_gradients_are_refused() -> None:
    _, packed, scale, _ = weights(9, 12, 4, torch.float32)
    x = torch.randn(5, 12).requires_grad_()
    with pytest.raises(NotDifferentiableError, match="int4_linear"):
        ops.int4_linear(x, packed, scale, group_size=4).sum().backward()
    one = torch.ones(1).requires_grad_()
    with pytest.raises(NotDifferentiableError, match="scaled_mm"):
        ops.scaled_mm(*operands(5, 9, 16), one, one, out_dtype=torch.float32).sum().backward()


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def code_of(program: Any, *tensors: Any, **options: Any) -> KernelCode:
    made = program.get_tir(*tensors, **options)
    return gpu.generate(made, HOPPER, Specialization(fast=True))


@pytest.mark.parametrize("by_row", [False, True], ids=["one", "rows"])
@pytest.mark.parametrize("fast", [False, True], ids=["sums", "fast"])
@pytest.mark.parametrize("few_rows", [False, True])
def test_roles_of_scaled_mm_on_hopper(by_row: bool, fast: bool, few_rows: bool) -> None:
    rows, columns = (2048, 1024) if by_row else (1, 1)
    code = code_of(
        programs.scaled_mm, empty(2048, 512, dtype=E4M3), empty(1024, 512, dtype=E4M3),
        empty(rows, dtype=torch.float32), empty(columns, dtype=torch.float32), empty(1024),
        by_row=by_row, fast=fast, few_rows=few_rows,
    )  # fmt: skip
    (launch,) = code.launches
    assert launch.language == "gluon"
    assert f"math {1 if few_rows else 2} x 4 warps" in launch.notes[0]
    assert compile_kernel(code, HOPPER, {}).launches[0].spills == 0


@pytest.mark.parametrize("few_rows", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_int4_linear_compiles_for_hopper(few_rows: bool, dtype: torch.dtype) -> None:
    group = empty(1024, 32)
    code = code_of(
        programs.int4_linear, empty(16, 4096, dtype=dtype), empty(1024, 2048, dtype=torch.uint8),
        group, group, empty(1024, dtype=dtype), few_rows=few_rows,
    )  # fmt: skip
    assert compile_kernel(code, HOPPER, {}).launches[0].spills == 0


A, B = operands(5, 9, 16)
ONE = torch.ones(1)
CODES, PACKED, SCALE, ZEROS = weights(9, 12, 4, torch.float32)
X = torch.randn(5, 12)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.scaled_mm(A.float(), B, ONE, ONE), ArgumentTypeError, "scaled_mm: input: .* float32"),
        (lambda: ops.scaled_mm(A, B[None], ONE, ONE), ArgumentError, r"mat2: .* matrix, got \(1, 16, 9\)"),
        (lambda: ops.scaled_mm(A, B.t(), ONE, ONE), ArgumentError, r"mat2: expected \(16, N\), got \(9, 16\)"),
        (lambda: ops.scaled_mm(A, B, ONE.double(), ONE), ArgumentTypeError, "scale_a: expected float32, got"),
        (lambda: ops.scaled_mm(A, B, 1.0, ONE), ArgumentTypeError, "scale_a: expected a tensor, got float"),
        (lambda: ops.scaled_mm(A, B, torch.ones(5, 1), ONE), ArgumentError, r"scale_b: .* \(1, 9\), or one"),
        (lambda: ops.scaled_mm(A, B, torch.ones(5, 2), torch.ones(1, 9)), ArgumentError, r"scale_a: .*\(5, 2\)"),
        (lambda: ops.scaled_mm(A, B, ONE, ONE, ONE), ArgumentError, r"bias: .* \(9,\), got \(1,\)"),
        (lambda: ops.scaled_mm(A, B, ONE, ONE, out_dtype=torch.int8), ArgumentError, "out_dtype: .* got torch.int8"),
        (lambda: ops.scaled_mm(A, B, ONE, ONE, None, ONE, torch.float32), ArgumentError,
         "scale_result: expected None for a result of float32"),
        (lambda: ops.scaled_mm(A, B, ONE, ONE, None, torch.ones(2)), ArgumentError, "scale_result: .* one element"),
        (lambda: ops.int4_linear(X.int(), PACKED, SCALE, group_size=4), ArgumentTypeError, "input: .* got int32"),
        (lambda: ops.int4_linear(X[0, 0], PACKED, SCALE, group_size=4), ArgumentError, "input: .* a number"),
        (lambda: ops.int4_linear(X, CODES, SCALE, group_size=4), ArgumentTypeError, "weight: expected uint8, got int64"),
        (lambda: ops.int4_linear(X, PACKED[:, :3], SCALE, group_size=4), ArgumentError,
         r"weight: expected \(out_features, 6\), two codes of 12 in a byte, got \(9, 3\)"),
        (lambda: ops.int4_linear(X, PACKED, SCALE, group_size=6), ArgumentError, r"scales: .* \(9, 2\), got \(9, 3\)"),
        (lambda: ops.int4_linear(X, PACKED, SCALE, ZEROS.half(), group_size=4), ArgumentTypeError,
         "zeros: expected the dtype of scales, float32, got float16"),
        (lambda: ops.int4_linear(X, PACKED, SCALE, None, X[0], group_size=4), ArgumentError, r"bias: .* \(9,\)"),
        (lambda: ops.int4_linear(X, PACKED, SCALE, group_size=3), ArgumentError, "group_size: .* even number, got 3"),
        (lambda: ops.int4_linear(X, PACKED, SCALE, group_size=0), ArgumentError, "group_size: .* got 0"),
        (lambda: ops.int4_linear(X, PACKED, SCALE, group_size="4"), ArgumentTypeError, "group_size: .* got str"),
        (lambda: ops.pack_int4(X), ArgumentTypeError, "pack_int4: codes: .* integers, got float32"),
        (lambda: ops.pack_int4(CODES[0, 0]), ArgumentError, "pack_int4: codes: .* got a number"),
        (lambda: programs.scaled_mm(A, B.t(), ONE, ONE, dtype="int8"), ArgumentError, "dtype: .* got 'int8'"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
