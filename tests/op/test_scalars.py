"""Run-time scalars: each dtype at its limits and past them, and all that Python may pass for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.op import scalars
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, ArgumentTypeError


def test_what_fits_is_stored_exactly() -> None:
    scalars.check_good("cpu")


@pytest.mark.parametrize("dtype", scalars.DTYPES)
def test_what_does_not_fit_is_refused(dtype: str) -> None:
    for value, expected in [(v, e) for d, v, e in scalars.BAD if d == dtype]:
        with pytest.raises(expected, match=rf"^every_scalar: argument '{dtype}': expected "):
            scalars.every_scalar(**{dtype: value})


def test_by_position_and_by_name_the_rule_is_one() -> None:
    x, y = vector(8), vector(8)
    expected = x + y
    for one in (1, True, np.float32(1), np.int64(1), torch.tensor(1.0)):
        assert torch.equal(samples.axpy(x, y, one), expected)
        assert torch.equal(samples.axpy(x, Y=y, alpha=one), expected)
    for bad in (None, "1", 1j, [1.0]):
        with pytest.raises(
            ArgumentTypeError, match="argument 'alpha': expected a value of float32"
        ):
            samples.axpy(x, y, bad)
        with pytest.raises(
            ArgumentTypeError, match="argument 'alpha': expected a value of float32"
        ):
            samples.axpy(x, y, alpha=bad)
    with pytest.raises(ArgumentError, match=r"argument 'n': .* got an integer of \d+ bits"):
        samples.counted(10**400)


def test_a_number_takes_no_gradient_with_it() -> None:
    alpha = torch.tensor(2.0, requires_grad=True)
    with pytest.raises(ArgumentTypeError, match=r"argument 'alpha': .* requires grad"):
        samples.axpy(vector(4), vector(4), alpha)
    with torch.no_grad():
        samples.axpy(vector(4), vector(4), alpha)


@pytest.mark.parametrize("value", [3, True, 0.5, -2])
def test_numbers_in_one_graph(value: Any) -> None:
    torch._dynamo.reset()
    x, y = vector(8), vector(8)

    def region(x: torch.Tensor, y: torch.Tensor, s: Any) -> torch.Tensor:
        return samples.axpy(x, y, s) + samples.counted(8, int(s))

    compiled = torch.compile(region, fullgraph=True, dynamic=True, backend="aot_eager")
    assert torch.equal(compiled(x, y, value), region(x, y, value))
