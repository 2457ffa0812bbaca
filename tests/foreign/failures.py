"""What goes wrong with kernels of others: a function for each, which raises its error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import tileops
import tileops.language as T
from tests.foreign import converted_kernels, kernels
from tests.foreign.launched import Launched
from tileops.foreign import nvrtc_library

A, B = 0x7F0000001000, 0x7F0000002000
HEADERS = {"factor.h": "#define FACTOR 2.0f\n"}
AXPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn)
.reqntid 256, 1, 1
{ ret; }
"""
SCALE = """#include "factor.h"
template <typename T, int VEC>
__global__ void __launch_bounds__(256) scale(const T* x, T* y, float a, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  for (int k = 0; k < VEC; ++k)
    if (i + k < n) y[i + k] = x[i + k] * a * FACTOR;
}
"""
ptx = tileops.ptx(AXPY)["axpy"]
cuda = tileops.cuda(SCALE, headers=HEADERS)["scale<float, 4>"]
boxes = tileops.cuda(converted_kernels.BOXES)["doubled_boxes"]


@dataclass(frozen=True)
class Failure:
    """``launch(X, Y, a, M, N)`` is the program's only launch; with sizes it is called with them."""

    launch: Callable[..., None]
    sizes: dict[str, int] | None = None
    needs_nvrtc: bool = False
    tensors: tuple[int, int] = (A, B)

    def run(self, name: str) -> None:
        """Trace, compile and launch, until something refuses."""
        launch = self.launch

        @tileops.jit(name=f"failing_{name}")
        def program(X, a: T.float32 = 1.0):
            M, N = T.dynamic("M, N")
            X: T.Tensor((M, N), T.float32)
            Y = T.empty((M, N), T.float32)
            with T.Extern():
                launch(X, Y, a, M, N)
            return Y

        op = Launched(program)
        sizes = self.sizes or {"M": 64, "N": 64}
        op.add(op.wanted(sizes))
        op.run(sizes, list(self.tensors), float_scalars=[1.0])


FAILURES: dict[str, Failure] = {}


def failure(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def keep(launch: Callable[..., None]) -> Callable[..., None]:
        made = T.macro(launch)
        FAILURES[launch.__name__] = Failure(made, **options)
        return made

    return keep


# -- arguments against what machine code declares ------------------------------------------------
@failure()
def too_few_arguments(X, Y, a, M, N):
    ptx.launch(grid=1, block=256)(X, Y, a)


@failure()
def pointer_for_a_number(X, Y, a, M, N):
    ptx.launch(grid=1, block=256)(X, Y, a, Y)


@failure()
def number_for_a_float(X, Y, a, M, N):
    ptx.launch(grid=1, block=256)(X, Y, N == 1, N)


@failure(needs_nvrtc=True)
def map_for_a_pointer(X, Y, a, M, N):
    boxes.launch(grid=1, block=128)(T.tensor_map(X, [16, 32]), T.tensor_map(Y, [16, 32]), M, N)


@failure()
def another_block(X, Y, a, M, N):
    ptx.launch(grid=1, block=(128, 2))(X, Y, a, N)


@failure(needs_nvrtc=True)
def block_over_the_bounds(X, Y, a, M, N):
    cuda.launch(grid=1, block=512)(X, Y, a, N)


@failure()
def unknown_name(X, Y, a, M, N):
    tileops.ptx(AXPY)["axpby"].launch(grid=1, block=256)(X, Y, a, N)


@failure(sizes={"M": 1 << 16, "N": 1 << 16}, needs_nvrtc=True)
def product_beyond_32_bits(X, Y, a, M, N):
    cuda.launch(grid=1, block=256)(X, Y, a, M * N)


@failure(sizes={"M": 1 << 16, "N": 1 << 16})
def product_beyond_a_declared_type(X, Y, a, M, N):
    kernels.declared[(1,)](X, Y, M * N, BLOCK=64)


# -- what is written -----------------------------------------------------------------------------
@failure()
def undeclared_write(X, Y, a, M, N):
    kernels.doubled[(1,)](X, X, N, BLOCK=64)


@failure()
def undeclared_atomic_in_a_call(X, Y, a, M, N):
    kernels.counted[(1,)](Y, X, N)


# -- sources -------------------------------------------------------------------------------------
@failure(needs_nvrtc=True)
def missing_include(X, Y, a, M, N):
    tileops.cuda(SCALE)["scale<float, 4>"].launch(grid=1, block=256)(X, Y, a, N)


@failure(needs_nvrtc=True)
def include_by_a_macro(X, Y, a, M, N):
    tileops.cuda('#define WHICH "factor.h"\n#include WHICH\n' + SCALE)


@failure(needs_nvrtc=True)
def error_in_a_template(X, Y, a, M, N):
    cu = tileops.cuda(SCALE.replace("FACTOR;", "FACTOR.nothing;"), headers=HEADERS)
    cu["scale<float, 4>"].launch(grid=1, block=256)(X, Y, a, N)


@failure(needs_nvrtc=True)
def instance_that_cannot_be(X, Y, a, M, N):
    cu = tileops.cuda(SCALE, headers=HEADERS)
    cu["scale<float, float>"].launch(grid=1, block=256)(X, Y, a, N)


@failure()
def ptx_for_another_gpu(X, Y, a, M, N):
    text = AXPY.replace("sm_80", "sm_100a").replace("8.0", "8.6")
    tileops.ptx(text)["axpy"].launch(grid=1, block=256)(X, Y, a, N)


@failure()
def cubin_for_another_gpu(X, Y, a, M, N):
    found = tileops.cubin({"sm_100a": b"\x7fELF\x02", "sm_80": b"\x7fELF\x02"})
    found["axpy"].launch(grid=1, block=256)(X, Y, a, N)


@failure()
def refused_by_triton(X, Y, a, M, N):
    kernels.refused[(1,)](Y, N, BLOCK=64)


@failure()
def plain_global(X, Y, a, M, N):
    kernels.reads_a_plain_global[(1,)](Y, N, BLOCK=64)


def no_nvrtc(monkeypatch: Any) -> None:
    """Without the library; not by ``FAILURES``, because a machine without it gives this too."""
    monkeypatch.setattr(nvrtc_library, "_folders", lambda *names: iter(()))
    monkeypatch.delenv("TILEOPS_NVRTC", raising=False)
    Failure(FAILURES["block_over_the_bounds"].launch).run("no_nvrtc")


# -- launches ------------------------------------------------------------------------------------
@failure(sizes={"M": 70_000, "N": 64})
def grid_over_the_limit(X, Y, a, M, N):
    kernels.doubled[(1, M)](X, Y, N, BLOCK=64)


@failure(sizes={"M": 70_000, "N": 64}, needs_nvrtc=True)
def cooperative_grid_too_large(X, Y, a, M, N):
    cuda.launch(grid=M, block=256, cooperative=True)(X, Y, a, N)


@failure()
def shared_over_the_limit(X, Y, a, M, N):
    ptx.launch(grid=1, block=256, shared=1 << 20)(X, Y, a, N)


@failure()
def shared_of_triton_over_the_limit(X, Y, a, M, N):
    kernels.matmul[(1, 1)](X, X, Y, M, N, N, N, 1, N, 1, N, 1, 256, 128, 128, True, num_stages=4)


@failure(sizes={"M": 64, "N": 33})
def stride_that_no_map_takes(X, Y, a, M, N):
    map_of_both(X, Y, M)


@failure(tensors=(A + 4, B))
def address_that_no_map_takes(X, Y, a, M, N):
    map_of_both(X, Y, M)


@T.macro
def map_of_both(X, Y, M):
    kernels.boxes_plus[(1,)](
        TensorDescriptor.from_tensor(X, [16, 32]), M, TensorDescriptor.from_tensor(Y, [16, 32]), 16
    )


# -- values from outside -------------------------------------------------------------------------
@failure()
def closure_over_a_tensor(X, Y, a, M, N):
    kernels.closed_over(torch.ones(1))[(1,)](Y, N, BLOCK=64)


def redefined_global(monkeypatch: Any) -> None:
    """The second compile of a program whose kernel reads another number by then."""

    @tileops.jit(name="failing_redefined_global")
    def program(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            kernels.shifted[(1,)](X, Y, N, BLOCK=64)
        return Y

    op = Launched(program)
    op.compiled(op.wanted({"N": 64}))
    monkeypatch.setattr(kernels, "SHIFT", type(kernels.SHIFT)(1.0))
    op.compiled(op.wanted({"N": 63}))


def redefined_function(monkeypatch: Any) -> None:
    """The same, where a function that the kernel calls has become another one."""

    @tileops.jit(name="failing_redefined_function")
    def program(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            kernels.counted[(1,)](X, Y, N)
        return Y

    op = Launched(program)
    op.compiled(op.wanted({"N": 64}))
    monkeypatch.setattr(kernels, "_count", kernels.count_twice)
    op.compiled(op.wanted({"N": 63}))


# Failures that need what pytest changes for the time of a test.
PATCHED = {f.__name__: f for f in (no_nvrtc, redefined_global, redefined_function)}


def files() -> tuple[Path, ...]:
    """The files whose folders and lines no golden text has."""
    return Path(str(kernels.__file__)), Path(__file__)


def fail_encoding(fake: Any, name: str) -> None:
    """The recorded driver takes any map; that of a GPU refuses these."""
    if name.endswith("_no_map_takes"):
        fake.fail("cuTensorMapEncodeTiled", 1)
