"""Ranks that call a tuned program use one config, whatever their timers say and whoever dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMES = {"8": 4.0, "16": 3.0, "32": 2.0, "64": 1.0}
REVERSE = {"8": 1.0, "16": 2.0, "32": 3.0, "64": 4.0}


def run(folder: Path, plans: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.autotuner.tuned_ranks", str(folder), json.dumps(plans)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    paths = [folder / f"{rank}.json" for rank in range(len(plans))]
    return [json.loads(path.read_text()) if path.exists() else None for path in paths]


def test_contradicting_ranks_use_one_config(tmp_path: Path) -> None:
    found = [r for r in run(tmp_path, [{"times": TIMES}, {"times": REVERSE}]) if r is not None]
    assert len(found) == 2
    assert all(r["right"] for r in found)
    assert len({json.dumps(r["config"]) for r in found}) == 1
    assert sorted(n for r in found for n in r["calls"]) == [8, 16, 32, 64]


def test_a_warm_rank_measures_nothing_and_hangs_nobody(tmp_path: Path) -> None:
    found = run(tmp_path, [{"times": TIMES, "warm": True}, {"times": REVERSE}])
    warm, other = found
    assert warm is not None
    assert other is not None
    assert warm["calls"] == []
    assert warm["config"] == other["config"]
    assert other["seconds"] < 60


def test_a_rank_that_dies_in_its_timer_leaves_the_others_an_answer(tmp_path: Path) -> None:
    found = run(tmp_path, [{"times": TIMES}, {"times": REVERSE, "die_after": 0}])
    assert found[1] is None
    assert found[0] is not None
    assert found[0]["right"]
    assert found[0]["config"] == {"block": 64}
    assert found[0]["seconds"] < 60
