"""Random pipelined programs on the GPU: exactly what they say, and the same at every repeat.

There are 60, or a tenth of ``TILEOPS_RANDOM_PROGRAMS``, since each takes a second to compile;
``TILEOPS_RANDOM_SEED`` is the first one's seed.
"""

from __future__ import annotations

import os

import pytest
import torch

import tileops
from tests.property.pipelined.drawn import drawn

COUNT = max(60, int(os.environ.get("TILEOPS_RANDOM_PROGRAMS", "60")) // 10)
FIRST = int(os.environ.get("TILEOPS_RANDOM_SEED", "1000"))
BATCH = 6
REPEATS = 1000


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, BATCH))
def test_random_pipelined_programs(first: int) -> None:
    for seed in range(first, first + BATCH):
        own = drawn(seed)
        on_gpu = own.copies("cuda")
        tileops.compile(own.program, target="cuda")(*on_gpu)
        own.require(on_gpu, own.expected())


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT, max(1, COUNT // 10)))
def test_every_repeat_gives_the_same(seed: int) -> None:
    own = drawn(seed)
    on_gpu = own.copies("cuda")
    kernel = tileops.compile(own.program, target="cuda")
    kernel(*on_gpu)
    first = [on_gpu[place].clone() for place in own.written]
    differ = torch.zeros((), dtype=torch.bool, device="cuda")
    for _ in range(REPEATS):
        for place in own.written:
            on_gpu[place].zero_()
        kernel(*on_gpu)
        for place, right in zip(own.written, first, strict=True):
            differ |= (on_gpu[place] != right).any()
    assert not differ, f"seed {seed}"
