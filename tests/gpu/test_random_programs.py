"""Random programs on the GPU agree bit for bit with the plain numpy evaluation (see tests/property).

``TILEOPS_RANDOM_PROGRAMS`` sets how many (60 by default), ``TILEOPS_RANDOM_SEED`` the first one's seed.
"""

from __future__ import annotations

import os

import pytest

import tileops
from tests.property.test_programs import expect, made

COUNT = int(os.environ.get("TILEOPS_RANDOM_PROGRAMS", "60"))
FIRST = int(os.environ.get("TILEOPS_RANDOM_SEED", "1000"))
BATCH = 6


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, BATCH))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + BATCH):
        program, tensors, expected = made(seed)
        on_gpu = [t.cuda() for t in tensors]
        tileops.compile(program, target="cuda")(*on_gpu)
        expect(program, seed, on_gpu[-1].cpu(), expected)
