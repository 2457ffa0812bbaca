"""Builds what the runtime's tests need: the recorded driver and hand-written CPU kernels."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops import runtime

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GXX = shutil.which("g++") or "g++"


def cuda_include() -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "include"


class FakeDriver:
    """The recorded driver, as the test sees it."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.fake_log.restype = ctypes.c_char_p

    def log(self, call: str | None = None) -> list[dict[str, Any]]:
        """The recorded calls in order, all or those of one kind."""
        lines = [json.loads(line) for line in self.library.fake_log().decode().splitlines()]
        return [line for line in lines if call is None or line["call"] == call]

    def fail(self, call: str, result: int) -> None:
        self.library.fake_fail(call.encode(), result)


@pytest.fixture(scope="session")
def fake_driver_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fake") / "libfakecuda.so"
    subprocess.run(
        [GXX, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden",
         "-isystem", str(cuda_include()), str(HERE / "fake_cuda.cpp"), "-o", str(out), "-pthread"],
        check=True,
    )  # fmt: skip
    return out


@pytest.fixture
def fake(fake_driver_path: Path) -> Iterator[FakeDriver]:
    driver = FakeDriver(fake_driver_path)
    driver.library.fake_reset()
    runtime.set_driver_library(str(fake_driver_path))
    yield driver
    runtime.set_driver_library("libcuda.so.1")


@pytest.fixture(scope="session")
def torch_cuda_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that stands for the part of torch that only CUDA builds have."""
    if torch.version.cuda is not None:
        pytest.skip("this torch brings its own libtorch_cuda.so, which the runtime would find")
    library = tmp_path_factory.mktemp("cuda") / "libtorch_cuda.so"
    subprocess.run(
        [GXX, "-std=c++17", "-fPIC", "-shared", "-Wl,-soname,libtorch_cuda.so",
         str(HERE / "fake_torch_cuda.cpp"), "-o", str(library)],
        check=True,
    )  # fmt: skip
    return library


def run_module(name: str, *arguments: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", name, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=ROOT,
        env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def build_kernel(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile C++ text to a kernel library; equal texts are compiled once."""
    folder = tmp_path_factory.mktemp("kernels")
    done: dict[str, Path] = {}

    def build(source: str, *, abi: bool = True) -> Path:
        text = (
            '#include "tileops_cpu_abi.h"\n' + ("TILEOPS_CPU_ABI_EXPORT\n" if abi else "") + source
        )
        if text not in done:
            cpp = folder / f"k{len(done)}.cpp"
            cpp.write_text(text)
            out = cpp.with_suffix(".so")
            subprocess.run(
                [GXX, "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                 "-fvisibility=hidden", f"-I{ROOT / 'csrc' / 'cpu'}", str(cpp), "-o", str(out)],
                check=True,
            )  # fmt: skip
            done[text] = out
        return done[text]

    return build


class Delta:
    """What the runtime's counters grew by since this was made."""

    def __init__(self) -> None:
        self.start = runtime.counters()

    def __getitem__(self, name: str) -> int:
        return runtime.counters()[name] - self.start[name]


@pytest.fixture
def delta() -> Callable[[], Delta]:
    return Delta
