"""Ranks of a tuning of ten configs, each with a timer of its own.

``python -m tests.autotuner.rank FOLDER PLANS`` forks one process for each plan, which writes what
it did to ``FOLDER/<rank>.json``. A plan holds ``times`` by config and what the rank does besides:
``die_after`` so many configs, ``die_deciding``, ``warm`` or ``pause_s``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch.distributed as dist

from tileops.autotuner import ranks
from tileops.autotuner.database import Answer, Measured


def main(rank: int, world: int, folder: Path, plan: dict) -> None:
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    dist.barrier()  # a rank that ends at once would be one that others cannot connect to
    joint = ranks.joint_tuning(lambda: "test")
    assert joint is not None
    joint._silence_s = plan.get("silence_s", 4.0)
    work = Work(plan)
    start = time.monotonic()
    answer = None if plan.get("warm") else ranks.together(joint, [str(n) for n in range(10)], work)
    seconds = time.monotonic() - start
    best = None if answer is None else {"best": answer.ranking[0]}
    done = {"answer": best, "measured": work.looked, "decided": work.decided, "seconds": seconds}
    (folder / f"{rank}.json").write_text(json.dumps(done))
    os._exit(0)  # without the group's own goodbye, which waits for dead ranks


class Work:
    chunk, effort = 2, 1.0

    def __init__(self, plan: dict) -> None:
        self.plan = plan
        self.looked: list[str] = []
        self.decided = 0

    def compile(self, names: list[str]) -> Iterator[tuple[str, None]]:
        return ((name, None) for name in names)

    def check(self, names: list[str], compiled: Iterator[tuple[str, None]]) -> None:
        for name, _ in compiled:
            if len(self.looked) == self.plan.get("die_after", -1):
                os._exit(9)
            time.sleep(self.plan.get("pause_s", 0.05))
            self.looked.append(name)

    def measure(self) -> dict[str, Measured]:
        return {name: Measured("ok", self.plan["times"][int(name)]) for name in self.looked}

    def decide(self, results: Mapping[str, Measured]) -> Answer:
        if self.plan.get("die_deciding"):
            os._exit(9)
        self.decided += 1
        return Answer.of(results)


def fork_all(folder: Path, plans: list[dict]) -> None:
    # Forked after the imports, which take most of a rank's time.
    pids = []
    for rank, plan in enumerate(plans):
        pid = os.fork()
        if pid == 0:
            try:
                main(rank, len(plans), folder, plan)
            finally:
                os._exit(1)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    fork_all(Path(sys.argv[1]), json.loads(sys.argv[2]))
