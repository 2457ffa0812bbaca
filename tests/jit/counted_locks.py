"""Prints, as JSON, how often a call takes the interpreter's lock; run with lock_counter preloaded.

Usage: ``python -m tests.jit.counted_locks LOCK_COUNTER``.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.programs import bench_add, bench_wide

CALLS = 50


def counted(counter: ctypes.PyDLL, call: Callable[[], Any]) -> float:
    for _ in range(3):
        call()
    before = counter.locks_taken()
    for _ in range(CALLS):
        call()
    return (counter.locks_taken() - before) / CALLS


def main(library: str) -> None:
    counter = ctypes.PyDLL(library)
    tensors = [torch.ones(256) for _ in range(7)]
    scalars = (1.0, 2.0, 3.0, 4.0)
    print(
        json.dumps(
            {
                "function of 2 tensors": counted(counter, lambda: bench_add(*tensors[:2])),
                "function of 7 tensors": counted(counter, lambda: bench_wide(*tensors, *scalars)),
                "torch.add": counted(counter, lambda: torch.add(*tensors[:2])),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
