"""The ops of programs that a call of an operator calls, and how torch checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.ops.cases import Case
from tileops.ops.explaining import ProgramCall, recorded


def programs_called(case: Case, dtype: torch.dtype) -> list[ProgramCall]:
    """The programs of the forward pass, with their arguments."""
    inputs: Any = case.inputs(4, 6, dtype, "cpu")
    calls = recorded(case.call, inputs, {})
    assert calls
    return calls


def checks_of(given: Sequence[Any]) -> Sequence[str] | str:
    """The parts of ``torch.library.opcheck`` for these arguments.

    That of the schema multiplies the tensors, which it cannot do with 8-bit floats on a CPU.
    """
    floats = [a for a in given if isinstance(a, torch.Tensor) and a.is_floating_point()]
    if any(a.dtype.itemsize == 1 for a in floats):
        return ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    return "ALL"
