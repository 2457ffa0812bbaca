"""Configs of ``@triton.autotune`` as configs of tileops: on copies, once, for all ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.foreign.tuned_ranks import WORLD, WritingTimer, chosen, tuned
from tileops import option

ROOT = Path(__file__).resolve().parents[2]


def test_each_config_is_measured_on_a_copy_and_once(tmp_path: Path) -> None:
    timer, x = WritingTimer({2: 2.0, 8: 1.0}), torch.randn(100)
    before = x.clone()
    with option.cache_dir(tmp_path):
        assert chosen(tuned(timer), x) == "BLOCK = 1024, num_warps = 8"
        assert torch.equal(x, before)
        assert all(torch.equal(seen, before) for seen in timer.seen)
        assert sorted(c["num_warps"] for c in timer.calls) == [2, 8]


def test_a_key_of_tritons_is_a_bucket_of_each_size(tmp_path: Path) -> None:
    with option.cache_dir(tmp_path):
        shared, exact = WritingTimer({2: 2.0, 8: 1.0}), WritingTimer({2: 2.0, 8: 1.0})
        by_power, by_size = tuned(shared), tuned(exact, buckets=lambda name, n: n)
        for size in (100, 120, 100):
            chosen(by_power, torch.zeros(size))
            chosen(by_size, torch.zeros(size))
    assert len(shared.calls) == 2
    assert len(exact.calls) == 4


def test_two_ranks_tune_once_and_run_one_config(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.foreign.tuned_ranks", str(tmp_path)], check=True,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=100,
    )  # fmt: skip
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)]
    assert len({report["config"] for report in found}) == 1
    assert sorted(warps for report in found for warps in report["calls"]) == [2, 8]
