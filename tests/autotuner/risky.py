"""A program whose configs are good, slow, wrong, endless or refused by the compiler.

``python -m tests.autotuner.risky STORE CACHE RANK``: one of two ranks that tune it together.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import torch

import tileops
import tileops.language as T
from tests.autotuner.finding import request_of
from tileops.jit.compiling import Request

RISKS = ("good", "loop", "wrong", "flags", "slow")


@tileops.jit(name="tuning_risky")
def risky(A, how: str = "good", block_N: int = 256):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        if how == "loop":
            turns = T.alloc_var(T.int32, 1)
            while turns > 0:
                turns = turns | 1
        if how == "slow":
            tile = T.alloc_fragment((block_N,), T.float32)
            for k in T.serial(800):  # 40 ms, more than a busy machine adds
                for i in T.Parallel(block_N):
                    tile[i] = T.exp(A[bx * block_N + i] + k)
                for i in T.Parallel(block_N):
                    B[bx * block_N + i] = tile[i]
        for i in T.Parallel(block_N):
            B[bx * block_N + i] = A[bx * block_N + i] * (3.0 if how == "wrong" else 2.0)
    return B


refused = tileops.jit(name="tuning_refused", compile_flags=["-fno-such-flag"])(risky.func)


def requests(x: torch.Tensor, names: Sequence[str] = RISKS) -> dict[str, Request]:
    """One request for each way, by its name; what follows a dot tells equal ways apart."""
    found = {}
    for name in names:
        how = name.partition(".")[0]
        program = refused.get_tir(x) if how == "flags" else risky.get_tir(x, how=how)
        found[name] = request_of(program, op="risky")
    return found


def main(store: str, cache: str, rank: int) -> None:
    import torch.distributed as dist

    from tests.autotuner.finding import find_fastest
    from tests.autotuner.test_workshop import OPTIONS
    from tileops.autotuner.ranks import joint_tuning

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)  # ranks have their own data
    x = torch.randn(20_000)
    joint = joint_tuning(lambda: "risky")
    assert joint is not None
    with tileops.option.cache_dir(cache):
        found = find_fastest(requests(x), [x], OPTIONS, joint=joint, workers=2)
    report = {"ranking": found.ranking, "status": found.status, "reasons": found.reasons}
    print(json.dumps(report))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
