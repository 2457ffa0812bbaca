"""Processes one after the other that call a tuned program: ``python -m tests.autotuner.counted PLANS``.

Each plan is one process, forked after the imports: ``blocks`` of its configs, and ``factor``,
``size``, ``dtype`` and ``searched`` of its program and call. It prints a line of JSON for each: the
blocks that its timer was asked for, the compiles, the choice, and whether the result was right.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import FakeTimer
from tileops.autotuner import decorator as _decorator  # noqa: F401  (imported before the fork)


def program_of(factor: float) -> Any:
    @tileops.jit(name="tuned_counted")
    def counted(A, block: int = 16, dtype: str = "float32"):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), dtype)
        B = T.empty((N,), dtype)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * factor
        return B

    return counted


def main(plan: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    timer = FakeTimer({8: 5.0, 16: 4.0, 32: 3.0, 64: 2.0, 128: 1.0})
    factor, dtype = plan.get("factor", 2.0), plan.get("dtype", "float32")
    program = tileops.autotune(configs=[{"block": b} for b in plan["blocks"]], timer=timer)(
        program_of(factor)
    )
    a = torch.arange(float(plan.get("size", 100))).to(getattr(torch, dtype))
    is_right = torch.equal(program(a, dtype=dtype), a * factor)
    compiles = tileops.stats()["compiles"]
    config = program.compile(a, dtype=dtype).config
    return {"calls": timer.calls, "compiles": compiles, "config": config, "right": is_right}


if __name__ == "__main__":
    for one in json.loads(sys.argv[1]):
        pid = os.fork()
        if pid == 0:
            try:
                print(json.dumps(main(one)), flush=True)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
