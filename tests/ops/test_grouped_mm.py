"""``ops.grouped_mm``: groups of every kind, what is behind them, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.ops.cases import CASES
from tileops import ops
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import decompositions
from tileops.ops.programs import grouped as programs

ENDS = {
    "even": [8, 16, 24, 32],
    "some empty": [0, 0, 17, 17],
    "rows behind": [3, 3, 20, 29],
    "all behind": [0, 0, 0, 0],
    "past the end": [5, 40, 40, 99],
    "one": [32],
    "none": [],
}
CASES = [case for case in CASES if case.info.name == "grouped_mm"]


def offs(ends: list[int]) -> torch.Tensor:
    return torch.tensor(ends, dtype=torch.int32)


def by_hand(a: torch.Tensor, b: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """In float64, group by group."""
    a, b = a.double(), b.double()
    if a.dim() == 3:
        return by_hand(b.mT, a.mT, ends).mT
    begin, parts = 0, []
    if b.dim() == 3:
        out = torch.zeros(a.shape[0], b.shape[-1], dtype=torch.float64)
        for g, end in enumerate(ends):
            out[begin:end] = a[begin:end] @ b[g]
            begin = min(end, len(a))
        return out
    for end in ends:
        parts.append(a[:, begin:end] @ b[begin:end])
        begin = min(end, len(b))
    return torch.stack(parts) if parts else torch.zeros(0, a.shape[0], b.shape[1]).double()


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("kind", ["rows", "columns", "terms"])
def test_groups_of_every_size(kind: str, ends: list[int]) -> None:
    """Small integers: every sum is exact."""
    groups = len(ends)
    a, b = {
        "rows": ((32, 7), (groups, 7, 5)), "columns": ((groups, 5, 7), (7, 32)),
        "terms": ((7, 32), (32, 5)),
    }[kind]  # fmt: skip
    x, y = (torch.randint(-4, 5, shape).float() for shape in (a, b))
    x.requires_grad_()
    y.requires_grad_()
    out, expected = ops.grouped_mm(x, y, offs=offs(ends)), by_hand(x, y, ends)
    assert torch.equal(out.double(), expected)
    expected = expected + 0 * (x.sum() + y.sum())  # without groups nothing depends on them
    d_out = torch.randint(-4, 5, out.shape).float()
    found = torch.autograd.grad(out, (x, y), d_out)
    right = torch.autograd.grad(expected, (x, y), d_out.double())
    assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


@pytest.mark.parametrize("kind", ["rows", "terms"])
def test_what_is_behind_the_groups_is_not_summed(kind: str) -> None:
    a, b = torch.randn(6, 300), torch.randn(300, 5)
    a[:, 170:], b[170:] = float("nan"), float("inf")
    if kind == "terms":
        out = ops.grouped_mm(a, b, offs=offs([90, 170]))
        torch.testing.assert_close(out[1], a[:, 90:170] @ b[90:170])
    else:
        out = ops.grouped_mm(b, torch.randn(2, 5, 3), offs=offs([90, 170]))
        assert (out[170:] == 0).all()
    assert out.isfinite().all()


def test_transposed_tensors_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.randn(7, 9).mT, torch.randn(2, 5, 7).mT
    given: list[Any] = []
    real = programs.grouped_mm

    def noted(*tensors: Any, **options: Any) -> Any:
        given.extend((*tensors[:2], options))
        return real(*tensors, **options)

    monkeypatch.setattr(programs, "grouped_mm", noted)
    ops.grouped_mm(a, b, offs=offs([4, 9]))
    assert given[0].data_ptr() == a.data_ptr()
    assert given[1].data_ptr() == b.data_ptr()
    assert all(x.is_contiguous() for x in given[:2])
    assert given[2] == {"a_turned": True, "b_turned": True, "is_wide": False}


def test_results_in_float32() -> None:
    a, b = torch.randn(40, 64).bfloat16(), torch.randn(2, 64, 8).bfloat16()
    out = ops.grouped_mm(a, b, offs=offs([10, 40]), out_dtype=torch.float32)
    assert out.dtype == torch.float32
    # Sums of 64 terms in float32: each rounds once, by 2^-24 of a partial sum.
    right = by_hand(a, b, [10, 40])
    bound = 64 * 2.0**-24 * (a.double().abs() @ b.double().abs()).amax(0)
    assert ((out.double() - right).abs() <= bound).all()
    x = a.clone().requires_grad_()
    (found,) = torch.autograd.grad(
        ops.grouped_mm(x, b, offs=offs([10, 40]), out_dtype=torch.float32).sum(), x
    )
    assert found.dtype == torch.bfloat16


def test_two_stacks_of_matrices() -> None:
    a, b = torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    assert torch.equal(ops.grouped_mm(a, b), torch.bmm(a, b))


def test_sums_of_float32_are_added_in_parts() -> None:
    """Over 4,096 terms one sum after the other loses twice what torch's product loses."""
    a, b = torch.rand(8, 4096) + 1, torch.rand(4096, 8) + 1
    right = a.double() @ b.double()
    for found in (
        ops.grouped_mm(a, b[None], offs=offs([8])), ops.grouped_mm(a, b, offs=offs([4096]))[0],
    ):  # fmt: skip
        # 16 parts of 256 terms: each addition rounds by half a unit of a sum of positive terms.
        assert ((found.double() - right).abs() <= (256 + 16) * 2.0**-24 * right).all()


def test_equal_calls_give_equal_bits() -> None:
    a, b = torch.randn(300, 200), torch.randn(3, 200, 70)
    one, two = (ops.grouped_mm(a, b, offs=offs([100, 100, 290])) for _ in range(2))
    assert torch.equal(one, two)


def test_the_op_passes_torchs_checks() -> None:
    a, b = torch.randn(9, 4, requires_grad=True), torch.randn(2, 4, 5, requires_grad=True)
    torch.library.opcheck(programs.grouped_mm.op, (a, b, offs([3, 9])))
    c = torch.randn(9, 5, requires_grad=True)
    torch.library.opcheck(programs.grouped_mm_terms.op, (a, c, offs([3, 9])), {"a_turned": True})


def test_graphs_do_not_depend_on_the_ends() -> None:
    compiled = torch.compile(
        lambda a, b, ends: ops.grouped_mm(a, b, offs=ends) * 2, fullgraph=True, dynamic=True,
        backend="aot_eager",
    )  # fmt: skip
    for rows, ends in ((12, [3, 12]), (12, [12, 12]), (7, [0, 7]), (5, [1, 2])):
        a, b = torch.randn(rows, 4), torch.randn(2, 4, 5)
        with torch.compiler.set_stance(skip_guard_eval_unsafe=False):
            out = compiled(a, b, offs(ends))
        torch.testing.assert_close(out.double(), 2 * by_hand(a, b, ends), rtol=1e-5, atol=1e-5)

    class Model(torch.nn.Module):
        def forward(self, a: Any, b: Any, ends: Any) -> Any:
            return ops.grouped_mm(a, b, offs=ends)

    a, b = torch.randn(12, 4), torch.randn(2, 4, 5)
    shapes = {"a": {0: torch.export.Dim("rows")}, "b": None, "ends": None}
    exported = torch.export.export(Model(), (a, b, offs([3, 12])), dynamic_shapes=shapes)
    assert torch.equal(
        exported.module()(a[:7], b, offs([0, 5])), ops.grouped_mm(a[:7], b, offs=offs([0, 5]))
    )


def test_flops_are_those_of_the_rows() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    a, b = torch.randn(9, 4, requires_grad=True), torch.randn(2, 4, 5, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        ops.grouped_mm(a, b, offs=offs([3, 9])).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 9 * 4 * 5


@pytest.mark.parametrize("case", CASES, ids=str)
def test_second_derivatives(case: Any) -> None:
    x, y = (t.requires_grad_() for t in case.inputs(6, 4, torch.float64, "cpu"))
    (d_x,) = torch.autograd.grad(case.call(x, y).square().sum(), x, create_graph=True)
    d_x.sum().backward()
    own, x.grad, y.grad = x.grad, None, None
    (d_x,) = torch.autograd.grad(case.eager(x, y).square().sum(), x, create_graph=True)
    d_x.sum().backward()
    torch.testing.assert_close(own, x.grad)


X, W, ENDS_2 = torch.randn(6, 4), torch.randn(2, 4, 5), offs([2, 6])
WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: ops.grouped_mm(X[0], W, offs=ENDS_2), ArgumentError, "mat_a: .* two or three dimensions, got 1"),
    (lambda: ops.grouped_mm(X, W.mT, offs=ENDS_2), ArgumentError, "mat_b: expected 4 rows.* got 5"),
    (lambda: ops.grouped_mm(X, W.double(), offs=ENDS_2), ArgumentTypeError, "mat_b: .* float32, got float64"),
    (lambda: ops.grouped_mm(X.int(), W, offs=ENDS_2), ArgumentTypeError, "mat_a: .* got int32"),
    (lambda: ops.grouped_mm(X, W), ArgumentTypeError, "offs: .* int32, got NoneType"),
    (lambda: ops.grouped_mm(X, W, offs=ENDS_2.long()), ArgumentTypeError, "offs: .* got torch.int64"),
    (lambda: ops.grouped_mm(X, W, offs=offs([6])), ArgumentError, r"offs: .* \(2,\), got \(1,\)"),
    (lambda: ops.grouped_mm(W, W.mT, offs=ENDS_2), ArgumentError, "offs: expected None"),
    (lambda: ops.grouped_mm(W, W[:1].mT), ArgumentError, "mat_b: expected 2 groups, got 1"),
    (lambda: ops.grouped_mm(X, W, offs=ENDS_2, bias=X), ArgumentError, "bias: expected None"),
    (lambda: ops.grouped_mm(X, W, offs=ENDS_2, out_dtype=torch.float16), ArgumentError, "out_dtype: "),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[m for *_, m in WRONG])
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"grouped_mm: {message}"):
        call()


def test_the_eager_form_and_torchs_function_agree() -> None:
    """torch's takes bfloat16 on the CPU."""
    a, b = torch.randn(32, 16).bfloat16(), torch.randn(2, 16, 8).bfloat16()
    mine = decompositions.grouped_mm(a, b, offs=offs([8, 32]))
    torch.testing.assert_close(mine, torch._grouped_mm(a, b, offs=offs([8, 32])))


def test_vmap_takes_one_element_after_the_other() -> None:
    x, w = torch.randn(3, 6, 4), torch.randn(3, 4, 5)
    rows = torch.vmap(lambda a: ops.grouped_mm(a, W, offs=ENDS_2))(x)
    terms = torch.vmap(lambda a, b: ops.grouped_mm(a, b, offs=offs([1, 4])))(x, w)
    for n in range(3):
        assert torch.equal(rows[n], ops.grouped_mm(x[n], W, offs=ENDS_2))
        assert torch.equal(terms[n], ops.grouped_mm(x[n], w[n], offs=offs([1, 4])))
