"""The bound of the errors of an operator: what torch's own operations in the same dtype make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.ops.cases import Case, Tensors


def results(value: Any) -> Tensors:
    """The results of a call as a tuple."""
    return tuple(value) if isinstance(value, tuple) else (value,)


def with_gradients(
    case: Case, call: Any, inputs: Sequence[torch.Tensor], seed: int
) -> list[torch.Tensor]:
    """The results of ``call`` and the gradients of ``inputs`` for random gradients of the results.

    An operator of inference has results alone.
    """
    if not case.info.has_gradients:
        return list(results(call(*inputs)))
    leaves = case.form.leaves(inputs)
    outputs = results(call(*leaves))
    wanted = [x for x in leaves if x.requires_grad]
    differentiable = [y for y in outputs if y.is_floating_point()]
    generator = torch.Generator().manual_seed(seed)
    grads = [
        torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype).to(y.device)
        for y in differentiable
    ]
    return [*(y.detach() for y in outputs), *torch.autograd.grad(differentiable, wanted, grads)]


def unit(dtype: torch.dtype, top: float) -> float:
    """The distance of neighbours at ``top``; a quantised integer's is 1, a place has none."""
    if dtype.is_floating_point:
        return float(torch.finfo(dtype).eps) * top
    return float(torch.iinfo(dtype).bits == 8)


def require_as_exact_as_torch(
    case: Case, rows: int, columns: int, dtype: torch.dtype, device: str, shift: float = 0.0
) -> None:
    """The largest error against float64 is at most twice that of torch's operations, and an ulp.

    The ulp is that of the largest value: where torch happens to be exact, one rounding is allowed.
    With one column, where gradients cancel to nothing, it is that of the largest term: an input, or a probability of 1.
    ``shift`` moves the inputs away from zero.
    """
    torch.manual_seed(rows * columns)
    inputs = [x + shift if shift else x for x in case.inputs(rows, columns, dtype, device)]
    exact = with_gradients(case, case.exact, case.form.to(inputs, torch.float64), 0)
    eager = with_gradients(case, case.eager, inputs, 0)
    found = with_gradients(case, case.call, inputs, 0)
    for n, (value, torchs, right) in enumerate(zip(found, eager, exact, strict=True)):
        assert value.shape == right.shape
        assert value.dtype == torchs.dtype
        kind = value.dtype
        value, torchs, right = (x.double() for x in (value, torchs, right))
        assert torch.equal(value.isnan(), torchs.isnan())
        value, torchs, right = (x.nan_to_num() for x in (value, torchs, right))
        if right.numel() == 0:
            continue
        terms = [1.0, *(float(x.double().abs().max()) for x in inputs)] if columns == 1 else []
        ulp = unit(kind, max(float(right.abs().max()), *terms, 0.0))
        bound = 2 * (torchs - right).abs().max() + ulp
        error = (value - right).abs().max()
        assert error <= bound, f"result {n}: error {error:.3g}, allowed {bound:.3g}"
