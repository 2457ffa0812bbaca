"""One rank of a tuning of ten configs with a timer of its own; prints what it did as JSON.

``python -m tests.autotuner.rank RANK WORLD FILE PLAN``; PLAN is JSON: ``times`` by config, and what
this rank does besides: ``die_after`` so many configs, ``warm`` or ``pause_s``.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch.distributed as dist

from tileops.autotuner import ranks


def main(rank: int, world: int, file: str, plan: dict) -> None:
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    # The store's helper threads start at the first use; what comes then is not to be timed.
    share = ranks.share_of("test")
    assert share is not None
    share._silence_s = plan.get("silence_s", 4.0)
    work = Work(plan)
    start = time.monotonic()
    answer = None if plan.get("warm") else ranks.together(share, 10, work, chunk=2)
    seconds = time.monotonic() - start
    print(
        json.dumps(
            {"answer": answer, "measured": work.looked, "decided": work.decided, "seconds": seconds}
        )
    )
    sys.stdout.flush()
    os._exit(0)  # without the group's own goodbye, which waits for dead ranks


class Work:
    def __init__(self, plan: dict) -> None:
        self.plan = plan
        self.looked: list[int] = []
        self.decided = 0

    def look(self, numbers: range) -> None:
        for number in numbers:
            if len(self.looked) == self.plan.get("die_after", -1):
                os._exit(9)
            time.sleep(self.plan.get("pause_s", 0.05))
            self.looked.append(number)

    def results(self) -> dict[int, dict]:
        return {number: {"ms": self.plan["times"][number]} for number in self.looked}

    def decide(self, results: dict[int, dict]) -> dict:
        if self.plan.get("die_deciding"):
            os._exit(9)
        self.decided += 1
        return {"best": min(results, key=lambda n: results[n]["ms"])}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
