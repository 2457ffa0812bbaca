"""One rank of a tuning that is bound by measurement: many configs of a copy, all timed to the end.

``python -m tests.gpu.tuning_rank STORE CACHE RANK WORLD RUNS``; prints the winner and the seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist

import tileops
from tests.autotuner.finding import find_fastest, request_of
from tests.gpu.risky import scale_in_place
from tileops.autotuner.param import TuningOptions
from tileops.autotuner.ranks import joint_tuning
from tileops.autotuner.rounds import Rules
from tileops.runtime import device_target

# Nothing is dropped and nothing is settled before the counts are reached.
RULES = Rules(drop=10.0, margin=-0.9, seconds=600.0, finalists=2)


def main(store: str, cache: str, rank: int, world: int, runs: int) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    x = torch.ones(1 << 29, device=device)  # 2 GiB, made from a seed in the child
    target = str(device_target(rank))
    requests = {
        str(n): request_of(scale_in_place.get_tir(x, block=256 * n), target, "scale")
        for n in range(1, 25)
    }
    dist.barrier()
    start = time.monotonic()
    options = TuningOptions(warmup=3, rep=runs)
    joint = joint_tuning(lambda: "copy")  # None for a single rank
    with tileops.option.cache_dir(cache):
        found = find_fastest(requests, [x], options, [device], joint=joint, rules=RULES)
    print(json.dumps({"winner": found.ranking[0], "seconds": time.monotonic() - start}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
