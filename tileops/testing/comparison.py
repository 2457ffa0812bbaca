"""Comparison of a result with its reference, with a permitted share of outliers."""

from __future__ import annotations

import torch

from tileops.errors import ArgumentTypeError
from tileops.profiler import assert_close


def torch_assert_close(
    tensor_a: torch.Tensor,
    tensor_b: torch.Tensor,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    verbose: bool = False,
    equal_nan: bool = True,
    check_device: bool = True,
    check_dtype: bool = True,
    base_name: str = "LHS",
    ref_name: str = "RHS",
) -> None:
    """AssertionError if more than ``max_mismatched_ratio`` of the elements differ.

    Elements agree where ``|a - b| <= atol + rtol * |b|``, in float64. Shapes must be equal, and
    device and dtype unless told otherwise; ``equal_nan=False`` counts every NaN as different.
    ``verbose`` changes nothing: the error always says how many elements differ and by how much.
    """
    for value in (tensor_a, tensor_b):
        if not isinstance(value, torch.Tensor):
            raise ArgumentTypeError(
                f"torch_assert_close: expected tensors, got {type(value).__name__}"
            )
    label = f"{base_name} against {ref_name}"
    for what, check in (("device", check_device), ("dtype", check_dtype)):
        found, expected = getattr(tensor_a, what), getattr(tensor_b, what)
        if check and found != expected:
            raise AssertionError(f"{label}: {what} {found}, expected {expected}")
    a, b = tensor_a.detach().cpu(), tensor_b.detach().cpu()
    if not equal_nan and a.shape == b.shape:
        # A NaN differs from any number, so that each place with one counts.
        a, b = a.double(), b.double()
        b = torch.where(a.isnan() & b.isnan(), torch.zeros_like(b), b)
    assert_close(a, b, atol, rtol, max_mismatched_ratio, label)
