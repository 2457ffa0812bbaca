"""The constructs that need memory or masks, on the GPU: exact results, the same each time."""

from __future__ import annotations

import pytest

import tileops
from tests.programs.clusters import CLUSTERS
from tests.programs.construct import Construct
from tests.programs.constructs import CONSTRUCTS
from tests.programs.sources import SOURCES
from tests.programs.threads import THREADS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", [*CONSTRUCTS, *CLUSTERS, *THREADS, *SOURCES], ids=lambda c: c.id)
def test_gpu(case: Construct) -> None:
    program = tileops.jit(case.func)
    for _ in range(5):
        inputs = case.inputs()
        case.check(inputs, program(*(x.cuda() for x in inputs)))
