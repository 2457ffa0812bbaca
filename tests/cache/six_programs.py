"""Six programs in one process, each checked against torch; prints counters, digests and warnings.

Arguments: ``GO``, a file that lets the process begin (it leaves ``ready.<pid>`` beside it), and
``SEED``: then every fifth call of ``os`` that changes or opens something in the cache fails.
"""

import errno
import hashlib
import json
import os
import random
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


def make_faulty(cache: str, seed: int) -> None:
    chance = random.Random(seed)

    def faulty(real):
        def call(path, *args, **more):
            mine = not isinstance(path, int) and os.fspath(path).startswith(cache)
            if mine and chance.random() < 0.2:
                code = chance.choice([errno.EBUSY, errno.ESTALE, errno.ENOENT])
                raise OSError(code, "injected", os.fspath(path))
            return real(path, *args, **more)

        return call

    for name in ("rename", "replace", "rmdir", "open"):
        setattr(os, name, faulty(getattr(os, name)))


go = Path(sys.argv[1]) if len(sys.argv) > 1 else None
if go is not None:
    (go.parent / f"ready.{os.getpid()}").write_text("")
if len(sys.argv) > 2:
    make_faulty(os.environ["TILEOPS_CACHE_DIR"], int(sys.argv[2]))
while go is not None and not go.exists():
    time.sleep(0.001)
right, digests = True, {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for factor in range(6):
        a = torch.randn(100 + factor)
        kernel = scaled(100 + factor, factor)
        right &= torch.equal(kernel(a), a * factor)
        library = kernel.artifact.files["kernel_lib.so"]
        digests[kernel.artifact.hash] = hashlib.sha256(library).hexdigest()
print(
    json.dumps(
        {
            "right": right,
            "digests": digests,
            "compiles": tileops.stats()["compiles"],
            "warnings": [str(w.message) for w in caught if "cache" in str(w.message)],
        }
    )
)
