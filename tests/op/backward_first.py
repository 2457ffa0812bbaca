"""A process whose first launch is in a backward pass: ``python -m tests.op.backward_first DEVICE``.

``check`` runs it twice: the first fills the cache, the second finds it full.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import torch

import tileops
import tileops.language as T

ROOT = Path(__file__).resolve().parents[2]


@tileops.jit(name="backward_first_negate")
def negate(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = -X[bx * 64 + i]
    return Y


class Negated(torch.autograd.Function):
    """torch's own operator forward, the program backward."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return -x

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        _threads.append(threading.get_ident())
        return negate(grad.contiguous())


_threads: list[int] = []


def main(device: str) -> None:
    x = torch.randn(1000, device=device, requires_grad=True)
    Negated.apply(x).sum().backward()
    stats = tileops.stats()
    report = {
        "right": bool(torch.equal(x.grad, torch.full_like(x, -1.0))),
        "own thread": _threads == [threading.get_ident()],
        "counts": [stats[n] for n in ("compiles", "disk_hits", "loads", "launches")],
        "compiler": any(m.startswith(("triton", "tileops.compiler")) for m in sys.modules),
    }
    print(json.dumps(report))


def check(device: str, cache: Path) -> None:
    """Right in both processes; the second compiles nothing and imports no compiler."""
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "tests.op.backward_first", device],
            cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TILEOPS_CACHE_DIR": str(cache)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert all(report["right"] for report in found)
    assert [report["counts"] for report in found] == [[1, 0, 1, 1], [0, 1, 1, 1]]
    assert not found[1]["compiler"]
    if device == "cuda":
        assert not found[1]["own thread"], (
            "autograd runs a device's backward in a thread of its own"
        )


if __name__ == "__main__":
    main(sys.argv[1])
