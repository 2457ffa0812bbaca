"""What is measured and compiled in which process, again after which change, and for how many sizes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.autotuner.test_keys import fresh_flags
from tests.autotuner.tuned_programs import FakeTimer, fresh_dynamic

pytestmark = pytest.mark.usefixtures("tuning_cache")

ROOT = Path(__file__).resolve().parents[2]
FOUR, FIVE = [8, 16, 32, 64], [8, 16, 32, 64, 128]


def processes(folder: Path, plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEOPS_CACHE_DIR": str(folder / "own")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.autotuner.counted", json.dumps(plans)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=200, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(plans)
    assert all(r["right"] for r in found)
    return found


def test_four_configs_then_none_then_the_fifth_alone_and_all_after_a_change(tmp_path: Path) -> None:
    plans: list[tuple[dict[str, Any], list[int]]] = [
        ({"blocks": FOUR}, FOUR),
        ({"blocks": FOUR}, []),
        ({"blocks": FIVE}, [128]),
        ({"blocks": FIVE[::-1]}, []),  # the order means nothing
        ({"blocks": [8, 32]}, []),  # a part of what was measured, and the default
        ({"blocks": FIVE, "factor": 3.0}, FIVE),  # another program
        ({"blocks": FIVE, "size": 101}, FIVE),
        ({"blocks": FIVE, "dtype": "float16"}, FIVE),
        ({"blocks": FIVE}, []),  # and nothing of that touched the first
        ({"blocks": FIVE, "size": 101}, []),
    ]
    found = processes(tmp_path, [plan for plan, _ in plans])
    assert [sorted(r["calls"]) for r in found] == [calls for _, calls in plans]
    assert [r["compiles"] for r in found] == [len(calls) for _, calls in plans]
    best = [r["config"]["block"] for r in found]
    assert best == [64, 64, 128, 128, 32, 128, 128, 128, 128, 128]


@pytest.mark.parametrize(("count", "seed"), [(200, 10), (300, 11)])
def test_random_sizes_cause_a_tuning_for_each_power_of_two_and_no_more(
    tuning_cache: Path, count: int, seed: int
) -> None:
    timer = FakeTimer({8: 3.0, 16: 2.0, 32: 1.0})
    program = tileops.autotune(configs=[{"block": 8}, {"block": 32}], timer=timer)(fresh_dynamic())
    sizes = random.Random(seed).choices(range(1, 4097), k=count)
    tileops.stats(reset=True)
    for number in range(2):
        for size in sizes:
            assert float(program(torch.ones(size)).sum()) == 2.0 * size
        if number == 0:
            tunings = len(list(tuning_cache.glob("scripts/*/*/tuning/*/best_config.json")))
            assert tunings <= 13
            assert len(timer.calls) == 3 * tunings
            # Three configs, each for sizes that divide and for those that do not.
            assert tileops.stats()["compiles"] <= 6
            tileops.stats(reset=True)
            timer.calls.clear()
    assert timer.calls == []
    assert tileops.stats()["compiles"] == 0


def test_each_layout_has_its_own_winner_in_this_process_and_the_next() -> None:
    def timer(config: Any, kernel: Any, inputs: Any) -> float:
        calls.append(config["block"])
        is_wide = inputs[0].stride(0) == 1
        return float(config["block"] if is_wide else 1 / config["block"])

    a = torch.randn(32, 32)
    layouts = {"rows": a, "columns": a.t(), "spread": torch.randn(32, 128)[:, ::4]}
    winners = {"rows": 32, "columns": 8, "spread": 32}
    for expected in (3, 0):
        program = tileops.autotune(configs=[{"block": 8}, {"block": 32}], timer=timer)(
            fresh_flags()
        )
        for name, tensor in layouts.items():
            calls: list[int] = []
            assert torch.equal(program(tensor), tensor)
            assert len(calls) == expected, name
            assert program.compile(tensor, None).config == {"block": winners[name]}
            assert len(calls) == expected, name
