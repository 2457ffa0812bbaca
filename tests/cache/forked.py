"""Calls of a real program, each in a process of its own that has called nothing before.

Such a process is a fork of one that has imported everything: a new process, without the seconds
that importing torch takes.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

import tileops
import tileops.language as T
from tileops import option


@tileops.jit(out_idx=[-1])
def tripled(N, factor=3.0, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * factor

    return main


def import_everything() -> None:
    """What a compile imports late is imported now: a user who can read nothing may call too."""
    torch.set_num_threads(1)
    with option.cache_disable():
        tripled(7, 0.5)(torch.ones(7))
    import filelock  # noqa: F401

    tileops.stats(reset=True)


def call(
    cache: Path | None, factor: float = 3.0, *, before: Callable[[], object] = lambda: None
) -> dict[str, object]:
    """Runs the program once on ``cache``; what the process saw, and its exit status."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, json.dumps(_report(cache, factor, before)).encode())
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {**json.loads(text or "{}"), "status": status}


def _report(cache: Path | None, factor: float, before: Callable[[], object]) -> dict[str, object]:
    if cache is not None:
        os.environ["TILEOPS_CACHE_DIR"] = str(cache)
    else:
        os.environ.pop("TILEOPS_CACHE_DIR", None)
    before()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.arange(300.0)
        right = torch.equal(tripled(300, factor)(x), x * factor)
    told = [str(w.message) for w in caught]
    return {"right": right, "compiles": tileops.stats()["compiles"], "warnings": told}


def entry(cache: Path) -> Path:
    """The folder of the only entry of ``cache``."""
    (folder,) = (cache / "programs").iterdir()
    return folder
