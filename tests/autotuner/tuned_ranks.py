"""Ranks that call a tuned program: ``python -m tests.autotuner.tuned_ranks FOLDER PLANS``.

One forked process for each plan, with a cache of its own; a plan holds ``times`` by block, and
``die_after`` so many configs, ``warm`` (it has tuned alone before), ``late_s`` (it comes so much
later), ``sleep_s`` (in its timer), ``cache`` (its folder), ``group`` (the ranks of a subgroup, made
by all), ``port`` (of a TCP store, which rank 0 holds), ``reverse`` (its list of configs is in the
other order) or ``after`` (it then tunes another program with these times, and asks again for the
first one in strict mode and with tune="never"). Each writes what it did to
``FOLDER/<rank>.json``.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_const, fresh_other
from tileops.autotuner import decorator as _decorator  # noqa: F401  (imported before the fork)
from tileops.autotuner import ranks
from tileops.autotuner.ranks import JointTuning, joint_tuning

SILENCE_SECONDS = 4.0  # shorter than the real one, so that the dead are noticed soon


class RankTimer(FakeTimer):
    """A timer that may end its process."""

    __qualname__ = "RankTimer"
    die_after = -1
    sleep_s = 0.05

    def __call__(self, config, kernel, inputs):  # type: ignore[no-untyped-def]
        if len(self.calls) == self.die_after:
            os._exit(9)
        time.sleep(self.sleep_s)
        return super().__call__(config, kernel, inputs)


def impatient(name: Callable[[], str]) -> JointTuning | None:
    joint = joint_tuning(name)
    if joint is not None:
        joint._silence_s = SILENCE_SECONDS
    return joint


def main(rank: int, world: int, folder: Path, plan: dict[str, Any]) -> None:
    ranks.joint_tuning = impatient
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    timer = RankTimer({int(block): ms for block, ms in plan["times"].items()})
    space = [{"block": block} for block in timer.times]
    if plan.get("reverse"):
        space.reverse()
    a = torch.arange(100.0)
    timer.sleep_s = plan.get("sleep_s", timer.sleep_s)
    with tileops.option.cache_dir(folder / plan.get("cache", f"cache{rank}")):
        if plan.get("warm"):
            tileops.autotune(configs=space, timer=timer)(fresh_const())(a)
            timer.calls.clear()
        timer.die_after = plan.get("die_after", -1)
        port = plan.get("port")
        store = f"file://{folder / 'store'}" if port is None else f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
        if "group" in plan:
            dist.new_group(plan["group"])
        time.sleep(plan.get("late_s", 0.0))
        program = tileops.autotune(configs=space, timer=timer)(fresh_const())
        start = time.monotonic()
        is_right = torch.equal(program(a), a * 2)
        seconds = time.monotonic() - start
        calls = list(timer.calls)
        config = dict(program.compile(a).config)
        report = {"right": is_right, "config": config, "calls": calls, "seconds": seconds}
        if "after" in plan:
            report.update(after(plan["after"], timer, space, a))
        (folder / f"{rank}.json").write_text(json.dumps(report))
    # Rank 0 may hold the store, from which answers are read for a while yet.
    time.sleep(plan.get("stay_s", 0.5))
    os._exit(0)


def after(times: dict[str, float], timer: RankTimer, space: list[Any], a: Any) -> dict[str, Any]:
    """What happens to another program, and to the first one where nothing may be measured."""
    found: dict[str, Any] = {}
    timer.calls.clear()
    with tileops.option.strict():
        again = tileops.autotune(configs=space, timer=timer)(fresh_const())
        found["strict"] = dict(again.compile(a).config)
    never = tileops.autotune(configs=space, timer=timer, tune="never")(fresh_const())
    found["never"] = dict(never.compile(a).config)
    timer.times = {int(block): ms for block, ms in times.items()}
    other = tileops.autotune(configs=space, timer=timer)(fresh_other())
    found["other"] = dict(other.compile(a).config)
    found["other_calls"] = list(timer.calls)
    return found


if __name__ == "__main__":
    place, plans = Path(sys.argv[1]), json.loads(sys.argv[2])
    pids = []
    for number, one in enumerate(plans):
        pid = os.fork()
        if pid == 0:
            try:
                main(number, len(plans), place, one)
            finally:
                os._exit(1)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
