"""Programs in files whose paths are no UTF-8: they run, and errors, bundles and the cache hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tileops.location import Location, printable

PROGRAM = """
import sys, torch, tileops
import tileops.language as T

@T.macro
def put(B, i, x):
    T.device_assert(x < 100.0, "too big")
    B[i] = x

@tileops.jit
def f(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            if bx * 32 + i < N:
                put(B, bx * 32 + i, A[bx * 32 + i] + 1.0)
        T.print(A[0], "first")
    return B

@tileops.jit
def wrong(A):
    A: T.Tensor((4,), T.float32)
    with T.Kernel(1):
        A[0] = T.dot(A, A)

print(f(torch.ones(5)).tolist())
for call in (lambda: f(torch.full((5,), 200.0)), lambda: wrong(torch.ones(4))):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error))
tileops.bundle(sys.argv[1], f)
f.get_kernel_source(torch.ones(5))
tileops.autotune(configs=[{}])(f)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="paths are bytes on Linux")
@pytest.mark.parametrize("runs", [2])
def test_a_program_runs_wherever_it_stands(tmp_path: Path, runs: int) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)  # noqa: PTH102
    file = folder + b"/program.py"
    with open(file, "w", encoding="utf-8") as out:  # noqa: PTH123
        out.write(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TILEOPS_CACHE_DIR": str(tmp_path / "cache"),
        "TILEOPS_DUMP_IR": "1",
        "TILEOPS_LOG": "all",
    }
    for _ in range(runs):  # the second from the cache
        command = [sys.executable, file, str(tmp_path / "bundle.tgz")]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        said = done.stdout.decode()
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        assert "[2.0, 2.0, 2.0, 2.0, 2.0]" in said
        assert "ArgumentError f: an assertion failed: too big" in said
        assert "caf\\xe9/program.py:7" in said
        assert "in the macro `put`, called at" in said
        assert "ProgramAttributeError the tile language has no name 'dot'" in said
    assert (tmp_path / "bundle.tgz").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("grün", "grün"),
        (os.fsdecode(b"caf\xe9"), "caf\\xe9"),
        ("\ud800", "\\xed\\xa0\\x80"),
    ],
)
def test_text_that_no_encoding_has_is_made_printable(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert Location(text, 3).place == f"{expected}:3"
