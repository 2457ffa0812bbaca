"""Extents of zero on the GPU: no body over them runs."""

from __future__ import annotations

import pytest

import tileops
from tests.programs.construct import Construct
from tests.programs.empty import EMPTY

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", EMPTY, ids=lambda c: c.id)
def test_gpu(case: Construct) -> None:
    inputs = case.inputs()
    case.check(inputs, tileops.jit(case.func)(*(x.cuda() for x in inputs)))
