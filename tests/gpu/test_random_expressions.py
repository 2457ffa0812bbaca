"""Random expressions of mixed dtypes on the GPU give what the CPU path gives (see tests/property).

``TILEOPS_RANDOM_PROGRAMS`` sets how many (60 by default), ``TILEOPS_RANDOM_SEED`` the first one's seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tileops
from tests.gpu.test_random_programs import BATCH, COUNT, FIRST
from tests.property.expressions import differences, function_of, inputs_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, BATCH))
def test_random_expressions(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + BATCH):
        program = tileops.jit(function_of(seed, tmp_path), name=f"expressions_{seed}")
        inputs = inputs_of(seed)
        on_cpu = list(program(*inputs))
        on_gpu = [out.cpu() for out in program(*(x.cuda() for x in inputs))]
        found = differences(seed, on_cpu, on_gpu)
        assert not found, "\n".join(found)
