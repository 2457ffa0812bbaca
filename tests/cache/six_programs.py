"""Six programs in one process, each checked against torch; prints counters and warnings."""

import json
import sys
import time
import warnings
from pathlib import Path

import torch

import tileops
import tileops.language as T


@tileops.jit(out_idx=[-1])
def scaled(N, factor, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * factor

    return main


go = Path(sys.argv[1]) if len(sys.argv) > 1 else None
while go is not None and not go.exists():
    time.sleep(0.001)
right = True
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for factor in range(6):
        a = torch.randn(100 + factor)
        right &= torch.equal(scaled(100 + factor, factor)(a), a * factor)
print(
    json.dumps(
        {
            "right": right,
            "compiles": tileops.stats()["compiles"],
            "warnings": [str(w.message) for w in caught if "cache" in str(w.message)],
        }
    )
)
