"""Tuned programs without a timer: workers compile, a child measures, on the CPU."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.autotuner.tuned_programs import fresh_const, fresh_in_place

pytestmark = pytest.mark.usefixtures("tuning_cache")


@pytest.mark.filterwarnings("ignore:.*tuned_.*")
def test_a_right_config_wins_and_is_kept() -> None:
    options = {"warmup": 2, "rep": 5, "ref_prog": lambda a: a * 2}
    space = tileops.space(scale=[3, 2])  # one of them is wrong, and as fast
    program = tileops.autotune(configs=space, **options)(fresh_const())
    a = torch.randn(100_000)
    assert torch.equal(program(a), a * 2)
    found = program.compile(a)
    assert found.config == {"scale": 2}
    assert found.latency is not None
    assert found.ref_latency is not None
    again = tileops.autotune(configs=space, **options)(fresh_const())
    assert again.compile(a).latency == found.latency


@pytest.mark.filterwarnings("ignore:.*tuned_.*")
def test_an_in_place_call_is_right_while_it_tunes() -> None:
    program = tileops.autotune(configs=[{"block": 64}, {"block": 128}], warmup=1, rep=2)(
        fresh_in_place()
    )
    a = torch.zeros(1000)
    program(a)
    assert torch.equal(a, torch.ones(1000))
