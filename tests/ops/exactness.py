"""The bound of the errors of an operator: what torch's own operations in the same dtype make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.ops.cases import Case, Tensors


def results(value: Any) -> Tensors:
    """The results of a call as a tuple."""
    return tuple(value) if isinstance(value, tuple) else (value,)


def with_gradients(call: Any, inputs: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """The results of ``call`` and the gradients of ``inputs`` for random gradients of the results."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = results(call(*leaves))
    generator = torch.Generator().manual_seed(seed)
    grads = [
        torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype).to(y.device)
        for y in outputs
    ]
    return [*(y.detach() for y in outputs), *torch.autograd.grad(outputs, leaves, grads)]


def require_as_exact_as_torch(
    case: Case, rows: int, columns: int, dtype: torch.dtype, device: str, shift: float = 0.0
) -> None:
    """The largest error against float64 is at most twice that of torch's operations, and an ulp.

    The ulp is that of the largest value: where torch happens to be exact, one rounding is allowed.
    With one column, where gradients cancel to nothing, it is that of the largest term: an input, or a probability of 1.
    ``shift`` moves the inputs away from zero.
    """
    torch.manual_seed(rows * columns)
    inputs = [x + shift for x in case.inputs(rows, columns, dtype, device)]
    exact = with_gradients(case.eager, [x.double() for x in inputs], 0)
    eager = with_gradients(case.eager, inputs, 0)
    found = with_gradients(case.call, inputs, 0)
    for n, (value, torchs, right) in enumerate(zip(found, eager, exact, strict=True)):
        assert value.shape == right.shape
        assert value.dtype == torchs.dtype
        assert torch.equal(value.isnan(), torchs.isnan())
        value, torchs, right = (x.nan_to_num() for x in (value, torchs, right))
        if right.numel() == 0:
            continue
        terms = [1.0, *(float(x.abs().max()) for x in inputs)] if columns == 1 else []
        ulp = torch.finfo(value.dtype).eps * max(float(right.abs().max()), *terms, 0.0)
        bound = 2 * (torchs.double() - right).abs().max() + ulp
        error = (value.double() - right).abs().max()
        assert error <= bound, f"result {n}: error {error:.3g}, allowed {bound:.3g}"
