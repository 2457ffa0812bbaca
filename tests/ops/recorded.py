"""The ops of programs that a call of an operator calls."""

from __future__ import annotations

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
