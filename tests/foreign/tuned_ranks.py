"""Ranks that tune a kernel of others: ``python -m tests.foreign.tuned_ranks FOLDER``.

Two forked processes, each with a cache of its own and with a timer that contradicts the other's.
Each writes what it measured and chose to ``FOLDER/<rank>.json``. No GPU: the timer stands for one.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton

import tileops
import tileops.language as T
from tests.foreign import kernels
from tests.foreign.launched import Launched
from tileops.autotuner import decorator as _decorator  # noqa: F401  (imported before the fork)
from tileops.autotuner.inputs import set_autotune_inputs

WORLD = 2


class WritingTimer:
    """Milliseconds by the number of warps; it writes what the kernel would write.

    ``calls`` are the configs in order, ``seen`` what each found in the written tensor.
    """

    __name__ = __qualname__ = "WritingTimer"

    def __init__(self, times: Mapping[int, float]) -> None:
        self.times = times
        self.calls: list[dict[str, Any]] = []
        self.seen: list[torch.Tensor] = []

    def __call__(self, config: Mapping[str, Any], kernel: Any, inputs: Sequence[Any]) -> float:
        self.calls.append(dict(config))
        self.seen.append(inputs[0].clone())
        inputs[0].mul_(2).add_(1)
        return self.times[config["num_warps"]]


_numbers = itertools.count()


def tuned(timer: WritingTimer | None, **options: Any) -> Any:
    """The program anew, as a process that starts has it."""
    configs = tileops.triton_configs(kernels.restored)

    @tileops.autotune(configs=configs, timer=timer, **options)
    @tileops.jit(name=f"foreign_restored_{next(_numbers)}", mutates=("X",))
    def program(X, BLOCK: int = 256, num_warps: int = 2):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        with T.Extern():
            kernels.restored[(triton.cdiv(N, BLOCK),)](X, N, BLOCK=BLOCK, num_warps=num_warps)

    return program


def chosen(program: Any, x: torch.Tensor) -> str:
    """The config of the code that a call with ``x`` on a GPU would run, tuned if it must be."""
    op = Launched(program)
    with set_autotune_inputs(x):
        # The tensors to tune on are where the timer looks for them.
        wanted = replace(op.wanted({"N": len(x)}), device=("cpu", 0))
        return str(op.provider.request_for(wanted).config)


def main(rank: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    fast = (2.0, 1.0) if rank == 0 else (1.0, 2.0)
    timer = WritingTimer(dict(zip((2, 8), fast, strict=True)))
    with tileops.option.cache_dir(folder / f"cache{rank}"):
        store = f"file://{folder / 'store'}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
        config = chosen(tuned(timer), torch.arange(100.0))
        report = {"config": config, "calls": [c["num_warps"] for c in timer.calls]}
        (folder / f"{rank}.json").write_text(json.dumps(report))
        dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    pids = []
    for number in range(WORLD):
        pid = os.fork()
        if pid == 0:
            try:
                main(number, Path(sys.argv[1]))
            finally:
                os._exit(1)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
