"""Ranks that call a tuned program use one config, whatever their timers say and whoever dies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = (8, 16, 32, 64)
TIMES = {"8": 4.0, "16": 3.0, "32": 2.0, "64": 1.0}
REVERSE = {"8": 1.0, "16": 2.0, "32": 3.0, "64": 4.0}
OTHER = {"8": 3.0, "16": 1.0, "32": 4.0, "64": 2.0}
LIMIT_SECONDS = 45.0  # of any rank's tuning call, on a busy machine; the dead are missed for 4 s

Report = dict[str, Any]


def run(folder: Path, plans: list[dict[str, Any]]) -> list[Report | None]:
    """What each rank did, None for one that died; fails where a rank hangs."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.autotuner.tuned_ranks", str(folder), json.dumps(plans)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    paths = [folder / f"{rank}.json" for rank in range(len(plans))]
    return [json.loads(path.read_text()) if path.exists() else None for path in paths]


def agreed(found: list[Report | None]) -> list[Report]:
    """The reports of the living, who all ran one config and were in time."""
    living = [r for r in found if r is not None]
    assert all(r["right"] for r in living)
    assert len({json.dumps(r["config"]) for r in living}) == 1, living
    assert max(r["seconds"] for r in living) < LIMIT_SECONDS
    return living


def measured(reports: list[Report]) -> list[int]:
    return sorted(n for r in reports for n in r["calls"])


def test_three_contradicting_ranks_share_the_work_and_use_one_config(tmp_path: Path) -> None:
    found = agreed(run(tmp_path, [{"times": TIMES}, {"times": REVERSE}, {"times": OTHER}]))
    assert len(found) == 3
    assert measured(found) == sorted(BLOCKS)


def test_lists_in_another_order_other_programs_and_strict_mode(tmp_path: Path) -> None:
    after = {"8": 1.0, "16": 2.0, "32": 3.0, "64": 4.0}
    plans: list[dict[str, Any]] = [{"times": TIMES, "after": after} for _ in range(2)]
    plans[1]["reverse"] = True
    found = agreed(run(tmp_path, plans))
    assert measured(found) == sorted(BLOCKS)
    for report in found:
        assert report["config"] == report["strict"] == report["never"] == {"block": 64}
        assert report["other"] == {"block": 8}  # not what was found for the first program
    assert sorted(n for r in found for n in r["other_calls"]) == sorted(BLOCKS)


def test_a_warm_rank_and_a_late_rank_measure_nothing_and_hang_nobody(tmp_path: Path) -> None:
    warm, other, late = run(
        tmp_path, [{"times": TIMES, "warm": True}, {"times": REVERSE}, {"times": OTHER, "late_s": 5}]
    )  # fmt: skip
    agreed([warm, other, late])
    assert warm is not None
    assert late is not None
    assert warm["calls"] == []
    assert late["calls"] == []
    assert warm["config"] == {"block": 64}  # it knew, and the others take what is known


def test_of_four_ranks_one_dies_in_its_timer_and_three_agree(tmp_path: Path) -> None:
    dead = {"times": TIMES, "die_after": 0}
    found = run(tmp_path, [{"times": TIMES}, dead, {"times": REVERSE}, {"times": OTHER}])
    assert found[1] is None
    living = agreed(found)
    assert len(living) == 3
    assert set(measured(living)) == set(BLOCKS)  # what the dead one had taken is measured too


def test_the_ranks_of_a_subgroup_need_no_others(tmp_path: Path) -> None:
    group = [1, 3]
    plans = [{"times": t, "group": group} for t in (TIMES, REVERSE, OTHER, REVERSE)]
    for rank in (0, 2):
        plans[rank]["late_s"] = 8.0  # outside: busy with something else
    found = run(tmp_path, plans)
    agreed(found)
    inside = [r for n, r in enumerate(found) if n in group and r is not None]
    outside = [r for n, r in enumerate(found) if n not in group and r is not None]
    assert measured(inside) == sorted(BLOCKS)
    assert measured(outside) == []


def test_where_the_rank_that_holds_the_store_dies_the_others_go_on_alone(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plans = [{"times": t, "port": port} for t in (TIMES, REVERSE, REVERSE)]
    plans[0]["die_after"] = 0
    found = run(tmp_path, plans)
    assert found[0] is None
    living = agreed(found)  # their timers agree
    assert len(living) == 2
    assert living[0]["config"] == {"block": 8}
