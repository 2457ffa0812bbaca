"""Whole programs on the GPU, against float64."""

from __future__ import annotations

import pytest
import torch

from tests.programs.families import runnable
from tests.programs.family_case import FamilyCase


@pytest.mark.parametrize("case", runnable("gpu"), ids=lambda c: c.id)
def test_gpu(case: FamilyCase) -> None:
    before = case.inputs()
    inputs = tuple(x.cuda() if isinstance(x, torch.Tensor) else x for x in before)
    case.check(before, inputs, case.impl(*inputs, **case.options))
