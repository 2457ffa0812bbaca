"""Random programs on the GPU agree bit for bit with the plain numpy evaluation (see tests/property)."""

from __future__ import annotations

import pytest

import tileops
from tests.property.test_programs import expect, made


@pytest.mark.parametrize("first", range(1000, 1060, 6))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 6):
        program, tensors, expected = made(seed)
        on_gpu = [t.cuda() for t in tensors]
        tileops.compile(program, target="cuda")(*on_gpu)
        expect(program, seed, on_gpu[-1].cpu(), expected)
