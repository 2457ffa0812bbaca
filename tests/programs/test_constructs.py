"""The constructs that a GPU keeps in memory or masks: the same exact results on each executor."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.kit.interpreted import run
from tests.programs.clusters import CLUSTERS
from tests.programs.construct import Construct
from tests.programs.constructs import CONSTRUCTS
from tests.programs.threads import THREADS


@pytest.mark.parametrize("case", [*CONSTRUCTS, *CLUSTERS, *THREADS], ids=lambda c: c.id)
def test_cpu(case: Construct) -> None:
    torch.manual_seed(2)
    inputs = case.inputs()
    case.check(inputs, tileops.jit(case.func)(*(x.clone() for x in inputs)))


@pytest.mark.parametrize("case", CONSTRUCTS, ids=lambda c: c.id)
def test_compiled_for_a_gpu_and_interpreted(case: Construct) -> None:
    torch.manual_seed(1)
    inputs = case.inputs()
    (out,) = run(case.func, *(x.clone() for x in inputs))
    case.check(inputs, out)
