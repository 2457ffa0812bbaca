"""A model of two programs, exported and packaged by AOTInductor, run with its kernels from a bundle.

``check_python`` and ``check_cpp`` are the tests for a device; the C++ program beside this file is the
half without Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tileops

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TORCH = Path(torch.__file__).parent

PACKAGE = """
import importlib, sys, torch, tileops

device, target, bundle, package, module = sys.argv[1:]
samples = importlib.import_module(module)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Buffer(torch.full((1,), 2.0))

    def forward(self, x, y):
        z = samples.axpy(x, y, 0.5)
        d, s = samples.sum_difference(z.reshape(3, 5), y.reshape(3, 5))
        return s * self.weight, d

x = torch.arange(15, dtype=torch.float32, device=device)
program = torch.export.export(Model().to(device), (x, x + 1))
calls = [str(n.target) for n in program.graph.nodes if "tileops" in str(n.target)]
ops = (samples.axpy, samples.sum_difference)
assert calls == [f"tileops.{p.definition.name}.default" for p in ops], calls
# One package is made: a precompiled header and an optimised wrapper take longer than they save.
import torch._inductor.config as config
wanted = {"precompile_headers": False, "compile_wrapper_opt_level": "O0"}
configs = {f"aot_inductor.{n}": v for n, v in wanted.items() if hasattr(config.aot_inductor, n)}
torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=configs)
tileops.bundle(bundle, [samples.axpy, (samples.sum_difference, [{"M": 3, "N": 5}])], target)
"""

# No source of the ops, and no compile: what the package calls comes from the bundle.
RUN = """
import faulthandler, sys, torch, tileops
import torch._inductor.codecache  # loading a package with torch 2.10 misses this import
faulthandler.enable()  # a crash of the package says where it was
device, bundle, package = sys.argv[1:]
tileops.load_bundle(bundle)
x = torch.arange(15, dtype=torch.float32, device=device)
for out in torch._inductor.aoti_load_package(package)(x, x + 1):
    print(*(f"{v:g}" for v in out.double().flatten().tolist()))
assert tileops.stats()["compiles"] == 0 and "tests.programs.samples" not in sys.modules
"""

# The same way into Python without tileops.
CONTROL = """
import sys, torch
import torch._inductor.codecache

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

device, package = sys.argv[1:]
x = torch.zeros(3, device=device)
torch._inductor.aoti_compile_and_package(torch.export.export(Model(), (x,)), package_path=package)
print(*torch._inductor.aoti_load_package(package)(x).tolist())
"""


class CrashError(AssertionError):
    """A process that a signal ended."""


def expected() -> list[str]:
    """The outputs as text, by torch's own arithmetic in float64: every value is exact."""
    x = torch.arange(15, dtype=torch.float64)
    y = x + 1
    z = 0.5 * x + y
    outputs = (2 * (z + y), (z - y).reshape(3, 5).T.flatten())
    return [" ".join(f"{v:g}" for v in out.tolist()) for out in outputs]


def run_python(text: str, cache: Path, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)], capture_output=True, text=True, timeout=600,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TILEOPS_CACHE_DIR": str(cache)},
    )  # fmt: skip
    said = f"exit status {done.returncode}\n{done.stderr}"
    if done.returncode < 0:
        raise CrashError(said)
    assert done.returncode == 0, said
    return done.stdout


def build_program(out: Path, *, cuda: bool) -> None:
    cuda_libraries = ["-ltorch_cuda", "-lc10_cuda"] if cuda else []
    subprocess.run(
        [os.environ.get("CXX") or shutil.which("g++") or "g++", "-std=c++20", "-O0", str(HERE / "aoti_without_python.cpp"), "-o", str(out),
         "-isystem", str(TORCH / "include"), "-isystem", str(TORCH / "include" / "torch" / "csrc" / "api" / "include"),
         f"-L{TORCH / 'lib'}", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", *cuda_libraries,
         f"-Wl,-rpath,{TORCH / 'lib'}"],
        check=True,
    )  # fmt: skip


def make(folder: Path, device: str, target: str, module: str = "tests.programs.samples") -> Path:
    """``folder`` with the package and the bundle in it, and without the cache that made them.

    ``module`` has the two programs.
    """
    where = (folder / "bundle", folder / "model.pt2")
    run_python(PACKAGE, folder / "cache", device, target, *where, module)
    shutil.rmtree(folder / "cache")
    return folder


def run_package(text: str, folder: Path, device: str, *arguments: object) -> str:
    """What the process ``text`` says, which loads a package.

    Skips where Python cannot load a package of torch alone either, as with a C++ compiler that links
    libstdc++ statically.
    """
    try:
        return run_python(text, folder / "cache", *arguments)
    except CrashError as error:
        try:
            run_python(CONTROL, folder / "cache", device, folder / "control.pt2")
        except CrashError:
            pytest.skip("packages without tileops crash here too; CXX chooses another compiler")
        raise error from None


def check_python(folder: Path, device: str) -> None:
    """From Python the package gives what torch gives, and compiles nothing; or skips, see above."""
    lines = run_package(RUN, folder, device, device, folder / "bundle", folder / "model.pt2")
    assert lines.splitlines() == expected()


def check_cpp(folder: Path, device: str) -> None:
    """In a process without Python too, as long as the bundle has its kernels."""
    bundle, package = folder / "bundle", folder / "model.pt2"
    program = folder / "aoti_without_python"
    build_program(program, cuda=device == "cuda")
    library = Path(tileops.__file__).parent / "libtileops.so"
    done = subprocess.run(
        [program, library, bundle, package, device], capture_output=True, text=True, timeout=120,
        env={k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TILEOPS"))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs = [f"out {line}" for line in expected()]
    assert done.stdout.splitlines() == ["ops 2", *outputs, *outputs, "python 0"]

    # Without the bundle's kernels the package cannot run: they are what ran above.
    (bundle / "programs").rename(folder / "programs")
    done = subprocess.run(
        [program, library, bundle, package, device], capture_output=True, text=True, timeout=120
    )
    (folder / "programs").rename(bundle / "programs")
    assert done.returncode == 3
    assert "manifest.json: No such file or directory" in done.stderr
