"""The constructs that a GPU keeps in memory or masks, on the CPU path: the same exact results."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.programs.construct import Construct
from tests.programs.constructs import CONSTRUCTS


@pytest.mark.parametrize("case", CONSTRUCTS, ids=lambda c: c.id)
def test_cpu(case: Construct) -> None:
    torch.manual_seed(2)
    inputs = case.inputs()
    case.check(inputs, tileops.jit(case.func)(*(x.clone() for x in inputs)))
