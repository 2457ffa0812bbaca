"""Hand-written CPU kernels as loadable programs: ``out[i] = 2 * a[i]`` in good and bad ways."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.kit import descriptions as d

_ABI = Path(__file__).resolve().parents[2] / "csrc" / "cpu"
_numbers = itertools.count()

_SOURCE = """
#include "tileops_cpu_abi.h"
TILEOPS_CPU_ABI_EXPORT
TILEOPS_CPU_ENTRY tileops_int32 kernel(const TileopsValue* p, tileops_int64 first, tileops_int64 last, char*,
                                       TileopsStatus*) {
  const float* a = (const float*)p[0].p;
  float* out = (float*)p[1].p;
  const tileops_int64 n = p[2].i, stop = last * 1024 < n ? last * 1024 : n;
  for (tileops_int64 i = first * 1024; i < stop; ++i) out[i] = 2 * a[i];
  BODY
  return TILEOPS_OK;
}
"""
# A busy machine takes a thread off its core for up to about 10 ms, in the median of a few runs too:
# "slow" takes about 25 ms and "slower" 75, so that their order does not depend on it.
BODIES = {
    "good": "",
    "slow": "for (volatile long i = 0; i < 30000000; i = i + 1) {}",
    "slower": "for (volatile long i = 0; i < 90000000; i = i + 1) {}",
    "wrong": "if (first == 0) out[0] = 1e6f;",
    "segfault": "*(volatile int*)8 = 1;",
    "abort": "__builtin_trap();",
    "loop": "for (volatile int go = 1; go;) {}",
}
_BLOCKS = (["const", 1023], ["add", 0, 1], ["const", 1024], ["floordiv", 2, 3])  # slot 4


def build(body: str, folder: Path) -> Path:
    """The library of one body."""
    path = folder / f"{body}.so"
    if not path.exists():
        source = folder / f"{body}.cpp"
        source.write_text(_SOURCE.replace("BODY", BODIES[body]))
        subprocess.run(
            [shutil.which("g++") or "g++", "-std=c++17", "-O2", "-fPIC", "-shared",
             "-fvisibility=hidden", "-I", str(_ABI), str(source), "-o", str(path)],
            check=True,
        )  # fmt: skip
    return path


def loadable(body: str, folder: Path, *, in_place: bool = False) -> dict[str, Any]:
    """A program with this body; ``in_place`` writes into its second argument instead of a new one."""
    path = build(body, folder)
    op = d.op(
        f"tuned_{body}_{next(_numbers)}",
        "(Tensor a, Tensor(a!) out) -> ()" if in_place else "(Tensor a) -> Tensor",
        [d.arg("a"), *([d.arg("out", mutated=True)] if in_place else [])],
        0 if in_place else 1,
    )
    op["namespace"] = "tileops_loaded"
    rules = [d.tensor(0, "a", [d.bind(0)])]
    outputs = [] if in_place else [{"dtype": "float32", "shape": [0]}]
    if in_place:
        rules.append(d.tensor(1, "out", [d.bind(0)]))
    host = d.host(["size:0"], *_BLOCKS)
    return {
        "op": op,
        "variant": d.variant(
            tensors=rules, sizes=[d.size("N")], host=d.host(["size:0"]), outputs=outputs
        ),
        "entry": d.entry(
            host=host, outputs=outputs,
            tensor_order=[{"arg": 0}, {"arg": 1} if in_place else {"output": 0}],
            launches=[d.launch(path.name, "kernel", 4, [d.p_tensor(0), d.p_tensor(1), d.p_slot(0, "i64")])],
        ),
        "images": {
            path.name: {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        },
    }  # fmt: skip
