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
from tests.foreign.test_identity import module
from tileops import counters, option
from tileops.cache import catalog, store
from tileops.cli.main import main
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
    store().clear_memory()
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


def why(capsys: pytest.CaptureFixture[str]) -> str:
    """What ``cache why`` says of the entry that was used last."""
    assert main(["cache", "why", catalog.items()[0].hash[:16]]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"factor": "3.0"}, "function helper"),
        ({"added": "3.0"}, "function inner"),  # which the function calls that the kernel calls
        ({"constant": "5.0"}, "value C"),
        ({"constant": "(1.0, 2.0)[1]"}, "value C"),
        ({"default": " = 64"}, "function kernel"),
    ],
    ids=str,
)
def test_the_reason_names_a_function_or_a_value(
    tmp_path: Path,
    reasons: list[str],
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    part: str,
) -> None:
    def launched(kernel: Any) -> None:
        @T.macro
        def launch(X, Y, N):
            kernel[(T.ceildiv(N, 128),)](X, Y, N, BLOCK=128)

        compiled(launch)

    launched(module(tmp_path).kernel)
    launched(module(tmp_path, pad="\n\n", comment="# moved").kernel)
    assert len(reasons) == 1
    launched(module(tmp_path, **changes).kernel)
    assert len(reasons) == 2
    assert reasons[1].endswith(f"changed: ir, {part}")
    assert f"\nchanged: {part}\n" in why(capsys)


INNER = """
#include "outer.h"
extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * x[i];
}
"""


@needs_nvrtc
@pytest.mark.parametrize("how", ["folder", "texts"])
def test_the_reason_names_a_header_of_a_header(
    tmp_path: Path, reasons: list[str], capsys: pytest.CaptureFixture[str], how: str
) -> None:
    def scaled(name: str, factor: int) -> None:
        headers = {
            "outer.h": '#pragma once\n#include "detail/inner.h"\n',
            "detail/inner.h": f"#define FACTOR {factor}\n",
        }
        if how == "texts":
            source = tileops.cuda(INNER, headers=headers)
        else:
            for header, text in headers.items():
                path = tmp_path / name / header
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            source = tileops.cuda(INNER, include=[tmp_path / name])

        @T.macro
        def launch(X, Y, N):
            source["scale"].launch(grid=T.ceildiv(N, 128), block=128)(X, Y, N)

        compiled(launch)

    scaled("first", 2)
    scaled("moved", 2)
    scaled("edited", 3)
    assert len(reasons) == 2
    assert reasons[1].endswith("changed: ir, header detail/inner.h")
    assert "\nchanged: header detail/inner.h\n" in why(capsys)


def test_a_constexpr_compiles_once(reasons: list[str]) -> None:
    def copied(block: int) -> None:
        @T.macro
        def launch(X, Y, N):
            kernels.gluon_copy[(T.ceildiv(N, block),)](X, Y, N, BLOCK=block)

        compiled(launch)

    for block in (128, 128, 256, 128, 256):
        copied(block)
    assert len(reasons) == 2
