"""Constructs that tiles cannot hold: the text compiles for GPUs, and is right under the interpreter."""

from __future__ import annotations

import pytest
import torch

from tests.compile.running import run
from tests.programs.construct import Construct
from tests.programs.constructs import CONSTRUCTS


@pytest.mark.parametrize("case", CONSTRUCTS, ids=lambda c: c.id)
def test_interpreted(case: Construct) -> None:
    torch.manual_seed(1)
    inputs = case.inputs()
    (out,) = run(case.func, *(x.clone() for x in inputs))
    case.check(inputs, out)
