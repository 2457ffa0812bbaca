"""A bundle on a machine that has nothing else: no compiler, no source, no network, nothing writable.

``check`` is called by the tests of the CPU and of the GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
import tileops
import tileops.language as T


@tileops.jit(name="bare_axpy")
def axpy(X, Y, alpha: T.float32, block: int = 64):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            Z[bx * block + i] = alpha * X[bx * block + i] + Y[bx * block + i]
    return Z


@tileops.jit(name="bare_rows")
def rows(X, block: int = 64):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((N, M), T.float32)
    with T.Kernel(M, T.ceildiv(N, block), threads=64) as (bx, by):
        for i in T.Parallel(block):
            if by * block + i < N:
                Y[by * block + i, bx] = X[bx, by * block + i] * 2
    return Y
"""
BUNDLING = """
import sys, tileops, bare_programs as p
here, other = sys.argv[1:]
ops = [p.axpy, (p.rows, [{"M": 3, "N": 5}])]
tileops.bundle("bundle", ops, here)
tileops.bundle("foreign", ops, other)
"""
# From here on every process, connection and file to write is an error, and so is the compiler.
RUNNING = """
import os, sys, torch
bundle, device, how = sys.argv[1:]
if device == "cuda":
    torch.zeros(1, device=device)
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "os.mkdir")

def watch(event, arguments):
    if event in FORBIDDEN or (event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")):
        raise AssertionError(f"{event} {arguments}")

class NoCompiler:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "triton" or name.startswith(("tileops.compiler", "tileops.codegen", "tileops.frontend")):
            raise ModuleNotFoundError(name)  # torch too looks for Triton, and goes on without

sys.addaudithook(watch)
sys.meta_path.insert(0, NoCompiler())
import tileops
tileops.load_bundle(bundle)
ops = torch.ops.tileops
x, y = (torch.arange(100.0, device=device) for _ in range(2))
if how == "foreign":
    try:
        ops.bare_axpy(x, y, 0.5)
    except tileops.CompileMissError as error:
        print(error)
    sys.exit()
assert torch.equal(ops.bare_axpy(x, y, 0.5), 1.5 * x)
assert torch.equal(ops.bare_axpy(x[1:], y[1:], 0.5), 1.5 * x[1:])
assert ops.bare_axpy(x[:0], y[:0], 0.5).shape == (0,)
m = torch.randn(3, 5, device=device)
assert torch.equal(ops.bare_rows(m), (m * 2).t().contiguous())
print("good", tileops.stats()["compiles"])
"""


def check(folder: Path, device: str, here: str, other: str) -> None:
    """Bundles for ``here`` and for ``other``, then runs both on ``device``, which is ``here``."""
    source = folder / "bare_programs.py"
    source.write_text(SOURCE)
    _run([BUNDLING, here, other], folder, TILEOPS_CACHE_DIR=str(folder / "cache"))
    source.unlink()
    empty = folder / "empty"
    empty.mkdir()
    empty.chmod(0o555)
    bare = {"PATH": "/nonexistent", "TILEOPS_CACHE_DIR": "/dev/null/cache", "C_INCLUDE_PATH": ""}
    assert _run([RUNNING, folder / "bundle", device, "own"], empty, **bare) == "good 0"
    message = _run([RUNNING, folder / "foreign", device, "foreign"], empty, **bare)
    # One error: op, what the device is, what the bundle has.
    assert message.startswith("bare_axpy: no kernel for ")
    assert len(message.splitlines()) == 1
    assert "for cpu" in message or f"for cuda:0 ({here.partition(':')[2]}" in message, message
    assert other.partition(":")[2] in message
    facts = _run(["-m", "tileops", "env"], empty, **bare)
    assert "tileops" in facts
    assert "torch" in facts
    assert list(empty.iterdir()) == []


def _run(arguments: list[object], cwd: Path, **changes: str) -> str:
    kept = {n: v for n, v in os.environ.items() if n not in ("HOME", "USER", "XDG_CACHE_HOME")}
    environment = {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{cwd}", "PYTHONDONTWRITEBYTECODE": "1"}
    first = [] if arguments[0] == "-m" else ["-c"]
    done = subprocess.run(
        [sys.executable, *first, *map(str, arguments)],
        cwd=cwd, env={**environment, **changes}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
