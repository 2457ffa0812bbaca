"""``jit(cpu=program)``: a tile program that is the code of a foreign kernel's op for CPU tensors."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.foreign import kernels
from tests.foreign.launched import Launched
from tileops.errors import ArgumentError, ArgumentTypeError, ProgramTypeError

D = T.DTypeVar("D", T.float16, T.bfloat16, T.float32)
_numbers = itertools.count()


@tileops.jit
def twin_rows_cpu(X, W, factor: T.float32 = 1.0):
    R, N = T.dynamic("R"), T.const("N")
    X: T.Tensor((R, N), D)
    W: T.Tensor((N,), D)
    Y = T.empty((R, N), D)
    with T.Kernel(R) as r:
        for i in T.Parallel(N):
            Y[r, i] = X[r, i] * W[i] * factor
    return Y


@tileops.jit(cpu=twin_rows_cpu)
def twin_rows(X, W, factor: T.float32 = 1.0, warps: int = 4):
    R, N = T.dynamic("R"), T.const("N")
    X: T.Tensor((R, N), D)
    W: T.Tensor((N,), D)
    Y = T.empty((R, N), D)
    with T.Extern():
        block = 1 << (N - 1).bit_length()
        kernels.scaled_rows[(R,)](X, W, Y, N, factor, BLOCK=block, num_warps=warps)
    return Y


def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    x, w = ctx.saved_tensors
    return twin_rows(grad, w, ctx.factor), (grad * x).sum(0) * ctx.factor, None


def saved(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.factor = inputs[2]


twin_rows.register_autograd(gradient, setup_context=saved)


def inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    # Halves, so that products in every dtype are exact.
    x = torch.randint(-8, 8, (5, 37)).to(dtype) / 2
    return x, torch.randint(-8, 8, (37,)).to(dtype) / 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_cpu_tensors_run_the_twin(dtype: torch.dtype) -> None:
    x, w = inputs(dtype)
    assert torch.equal(twin_rows(x, w), x * w)
    assert torch.equal(twin_rows(x, w, 0.5, warps=8), x * w * 0.5)
    assert torch.equal(torch.ops.tileops.twin_rows(x, w, 2.0), x * w * 2)


def test_it_is_an_op_as_others() -> None:
    x, w = inputs()
    torch.library.opcheck(twin_rows.op, (x, w, 0.5))
    x.requires_grad_()
    w.requires_grad_()
    torch.library.opcheck(twin_rows.op, (x, w, 0.5))
    torch.autograd.gradcheck(
        lambda x, w: twin_rows(x.float(), w.float(), 0.5).double(),
        (x.detach().double().requires_grad_(), w.detach().double().requires_grad_()),
        eps=0.5,  # products of halves are exact in float32, and the op is linear in each input
        atol=0.0, rtol=0.0,
    )  # fmt: skip


def test_torch_compiles_and_exports_it() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return twin_rows(x, w, 0.5) + 1

    x, w = inputs()
    compiled = torch.compile(Model(), fullgraph=True, dynamic=True, backend="aot_eager")
    assert torch.equal(compiled(x, w), x * w * 0.5 + 1)
    rows = torch.export.Dim("rows")
    exported = torch.export.export(Model(), (x, w), dynamic_shapes=({0: rows}, None))
    assert torch.equal(exported.module()(x[:3], w), x[:3] * w * 0.5 + 1)


def test_the_gpu_still_gets_the_kernel() -> None:
    op = Launched(twin_rows, {"D": "float16"})
    entry = op.compiled(op.wanted({"R": 3, "N": 64}))
    assert [launch["entry"] for launch in entry.manifest["record"]["launches"]] == ["scaled_rows"]


BUNDLED = """
import sys
sys.modules["triton"] = None
import torch, tileops
tileops.load_bundle(sys.argv[1])
x, w = torch.ones(3, 37), torch.arange(37.0)
assert torch.equal(torch.ops.tileops.twin_rows(x, w, 2.0), x * w * 2)
assert tileops.stats()["compiles"] == 0
"""


def test_a_bundle_has_both(tmp_path: Path) -> None:
    wanted = [(twin_rows, [{"N": 37, "D": T.float32}])]
    folder = tileops.bundle(tmp_path / "ops", wanted, ["cpu", "cuda:sm_90"])
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert any(name.endswith(".so") for name in names)
    assert any(name.endswith(".cubin") for name in names)
    done = subprocess.run(
        [sys.executable, "-c", BUNDLED, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_tuned_op_does_not_tune_for_its_twin() -> None:
    @tileops.autotune(configs=[{"warps": 2}, {"warps": 8}])
    @tileops.jit(cpu=twin_rows_cpu, name=f"foreign_twin_{next(_numbers)}")
    def tuned(X, W, factor: T.float32 = 1.0, warps: int | None = None):
        R, N = T.dynamic("R"), T.const("N")
        X: T.Tensor((R, N), D)
        W: T.Tensor((N,), D)
        Y = T.empty((R, N), D)
        with T.Extern():
            kernels.scaled_rows[(R,)](X, W, Y, N, factor, BLOCK=64, num_warps=warps)
        return Y

    x, w = inputs()
    before = tileops.stats()["compiles"]
    assert torch.equal(tuned(x, w), x * w)
    assert tileops.stats()["compiles"] - before <= 1


def over(twin: Any) -> Any:
    @tileops.jit(cpu=twin, mutates=("Z",), name=f"foreign_twin_{next(_numbers)}")
    def program(X, Z, block: int = 64):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Z: T.Tensor((N,), T.float32)
        with T.Extern():
            kernels.doubled[(1,)](X, Z, N, BLOCK=block)

    return program


def test_compile_time_values_reach_the_twin_by_name() -> None:
    @tileops.jit
    def twin(X, Z, block: int = 16):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Z: T.Tensor((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block)) as b:
            for i in T.Parallel(block):
                Z[b * block + i] = X[b * block + i] + block

    x, z = torch.zeros(100), torch.zeros(100)
    program = over(twin)
    version = z._version
    program(x, z)
    assert torch.equal(z, torch.full((100,), 16.0))  # its own default
    assert z._version > version
    program(x, z, block=32)
    assert torch.equal(z, torch.full((100,), 32.0))


def other_size(X, Z):
    M = T.dynamic("M")
    X: T.Tensor((M,), T.float32)
    Z: T.Tensor((M,), T.float32)
    with T.Kernel(1):
        Z[0] = X[0]


def other_dtype(X, Z):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Z: T.Tensor((N,), T.float64)
    with T.Kernel(1):
        Z[0] = X[0]


def other_result(X, Z):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Z: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(1):
        Y[0] = X[0]
    return Y


def other_write(X, Z):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Z: T.Tensor((N,), T.float32)
    with T.Kernel(1):
        X[0] = Z[0]


@pytest.mark.parametrize(
    ("twin", "message"),
    [
        (other_size, r"its CPU program other_size must have the parameters(.|\n)*size N: i32 dynamic\n *found: +size M: i32 dynamic"),
        (other_dtype, r"expected: tensor Z: f32\[N\] global\n *found: +tensor Z: f64\[N\] global"),
        (other_result, r"expected: return \[\]\n *found: +tensor Y: f32\[N\] global allocated"),
        (other_write, r"its CPU program other_write writes tensor `X`"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_a_twin_that_is_another_program(twin: Any, message: str) -> None:
    program = over(tileops.jit(twin))
    with pytest.raises(ProgramTypeError, match=message) as caught:
        program(torch.zeros(4), torch.zeros(4))
    assert "test_cpu_twin.py" in str(caught.value)


def test_what_is_no_twin() -> None:
    with pytest.raises(ArgumentTypeError, match=r"cpu: expected an eager program of @tileops.jit"):
        tileops.jit(cpu=lambda x: x)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match=r"cpu belongs to eager programs"):

        @tileops.jit(cpu=twin_rows_cpu)
        def lazy(n: int):
            @T.prim_func
            def main(X: T.Tensor((n,), T.float32)):
                with T.Kernel(1):
                    X[0] = 1.0

            return main
