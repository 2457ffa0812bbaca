"""What an edit compiles: nothing, or exactly what it changed, and the reason names that."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tileops
import tileops.language as T
from tests.foreign import kernels
from tests.foreign.launched import Launched
from tests.foreign.test_device_code import needs_nvrtc
from tileops import counters, option
from tileops.jit.compiling import obtain_listed

SCALE = """
#include "factor.h"
extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * FACTOR;
}
"""


@pytest.fixture
def reasons(tmp_path: Path) -> Iterator[list[str]]:
    """The reasons of the compiles of a test, in a cache of its own."""
    found: list[str] = []
    counters.on_compile(lambda event: found.append(event.why))
    with option.cache_dir(tmp_path / "cache"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the program is defined again, as after an edit
        yield found


def compiled(launch: Any) -> None:
    """Define a program anew, as an edit does, and compile it."""

    @tileops.jit(name="foreign_edited")
    def program(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            launch(X, Y, N)
        return Y

    op = Launched(program)
    request = op.provider.request_for(op.wanted({"N": 64}))
    # In a process of its own, as after an edit, the op has its plain name.
    obtain_listed(replace(request, op="foreign_edited", script="edited"))


@needs_nvrtc
def test_a_header_compiles_once_and_is_named(tmp_path: Path, reasons: list[str]) -> None:
    def scaled(folder: Path, header: str) -> None:
        folder.mkdir()
        (folder / "factor.h").write_text(header)
        source = tileops.cuda(SCALE, include=[folder])

        @T.macro
        def launch(X, Y, N):
            source["scale"].launch(grid=T.ceildiv(N, 128), block=128)(X, Y, N)

        compiled(launch)

    scaled(tmp_path / "first", "#define FACTOR 2\n")
    scaled(tmp_path / "moved", "#define FACTOR 2\n")
    assert len(reasons) == 1
    scaled(tmp_path / "edited", "#define FACTOR 3\n")
    assert len(reasons) == 2
    assert reasons[1].endswith("changed: ir, header factor.h")


def test_a_constexpr_compiles_once(reasons: list[str]) -> None:
    def copied(block: int) -> None:
        @T.macro
        def launch(X, Y, N):
            kernels.gluon_copy[(T.ceildiv(N, block),)](X, Y, N, BLOCK=block)

        compiled(launch)

    for block in (128, 128, 256, 128, 256):
        copied(block)
    assert len(reasons) == 2
