"""Write the bundle of our own release: the operators of ``tileops.ops`` for common sizes.

    python .ci/kernels.py FOLDER [--targets cuda:sm_90 ...] [--sizes 4096 ...]

Needs Triton and g++, and no GPU. Other sizes and dtypes are compiled at their first call, as usual.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import Any

import tileops
from tileops.ops.programs import gates, norms, softmax

# Hidden sizes of models from 1 to 70 thousand million parameters.
SIZES = [1024, 2048, 3072, 4096, 5120, 6144, 8192]
DTYPES = ["bfloat16", "float16"]
GPUS = [f"cuda:sm_{number}" for number in (80, 86, 89, 90, 100, 120)]
CPUS = {"x86_64": ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"], "aarch64": ["cpu:aarch64"]}


def operators(sizes: list[int]) -> list[tuple[Any, list[dict[str, Any]]]]:
    """The programs, each with its configurations."""
    rows = [{"N": size, "X_dtype": dtype, "W_dtype": dtype} for size in sizes for dtype in DTYPES]
    plain = [{"dtype": dtype} for dtype in DTYPES]
    return [
        (norms.rms_norm, rows),
        (norms.add_rms_norm, rows),
        (norms.layer_norm, rows),
        (norms.add_layer_norm, rows),
        (softmax.softmax, [{"N": size, **each} for size in sizes for each in plain]),
        (gates.silu_mul, plain),
        (gates.gelu_mul, plain),
        (gates.gate_backward, plain),
    ]


def main() -> None:
    """Write the bundle and print its size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--targets", nargs="+", default=[*GPUS, *CPUS[platform.machine()]])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    options = parser.parse_args()
    tileops.bundle(options.folder, operators(options.sizes), options.targets)
    files = [path.stat().st_size for path in options.folder.rglob("*") if path.is_file()]
    print(f"{options.folder}: {len(files)} files, {sum(files) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
