"""A program with source takes over the op that a bundle brought, if it is the same program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Run = Callable[..., str]

ADOPTING = """
import sys, torch, tileops
ops = torch.ops.tileops
loaded = tileops.load_bundle(sys.argv[1])
x, y = torch.randn(100), torch.randn(100)
before = ops.sample_axpy.default
right = torch.equal(before(x, y, 1.0), x + y)
graph = torch.compile(lambda a, b: ops.sample_axpy(a, b, 1.0), backend="eager", fullgraph=True)
right &= torch.equal(graph(x, y), x + y)
from tests.programs import samples
"""


def test_the_op_stays_and_is_the_programs(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    text = ADOPTING + (
        "assert samples.axpy.op is before and ops.sample_axpy.default is before\n"
        "assert samples.lazy_add(48).op is next(op for name, op in loaded.items() if 'lazy_add' in name)\n"
        "assert [n for n in dir(ops) if 'axpy' in n] == ['sample_axpy'] and right\n"
        # Without a compiler: the same kernels, called in each way.
        "assert torch.equal(samples.axpy(x, y, 1.0), x + y) and torch.equal(before(x, y, 1.0), x + y)\n"
        "assert torch.equal(graph(x[1:], y[1:]), x[1:] + y[1:])\n"
        "assert torch.equal(samples.lazy_add(48)(x[:48], y[:48]), x[:48] + y[:48])\n"
        "a, b = torch.ones(3, 5), torch.ones(3, 5)\n"
        "assert torch.equal(samples.sum_difference(a, b)[1], a + b)\n"
        "assert ops.sample_scaled(torch.ones(9, dtype=torch.float64), factor=float('inf'), dtype='float64').isinf().all()\n"
        # A gradient is the program's.
        "samples.axpy.register_autograd(lambda ctx, g: (ctx.alpha * g, g, None),\n"
        "    setup_context=lambda ctx, inputs, output: setattr(ctx, 'alpha', inputs[2]))\n"
        "p, q = (torch.randn(7, requires_grad=True) for _ in range(2))\n"
        "for call in (samples.axpy, before, torch.compile(samples.axpy, backend='aot_eager', fullgraph=True)):\n"
        "    p.grad = None; call(p, q, 3.0).sum().backward(); assert p.grad.tolist() == [3.0] * 7\n"
        # Another bundle of it serves the program from now on.
        "assert tileops.load_bundle(sys.argv[1])['tileops::sample_axpy'] is before\n"
        "print(tileops.stats()['compiles'])\n"
    )  # fmt: skip
    out = run_python(
        text, sample_bundle, PATH="/nonexistent", TILEOPS_CACHE_DIR=str(tmp_path / "cache")
    )
    assert out == "0"


def test_an_adopted_op_compiles_what_the_bundle_lacks(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    text = ADOPTING + (
        "import ctypes\n"
        "from pathlib import Path\n"
        "try: ops.sample_sum_difference(torch.ones(2, 2), torch.ones(2, 2))\n"
        "except tileops.CompileMissError as error: print('needs a compile' in str(error))\n"
        "tileops.option.strict(False)\n"
        "print(ops.sample_sum_difference(torch.ones(2, 2), torch.ones(2, 2))[1].tolist())\n"
        # C meets a program with source there.
        "library = ctypes.CDLL(str(Path(tileops.__file__).parent / 'libtileops.so'))\n"
        "library.tileops_last_error.restype = ctypes.c_char_p\n"
        "library.tileops_load_bundle(sys.argv[1].encode())\n"
        "print('is held by a program of this process' in library.tileops_last_error().decode())\n"
        # Defined once more, as in a notebook: the op of the bundle is retired as any other.
        "import importlib\n"
        "importlib.reload(samples)\n"
        "try: before(x, y, 1.0)\n"
        "except tileops.RedefinedOpError: print(samples.axpy.op.name())\n"
        "print(torch.equal(ops.sample_axpy(x, y, 1.0), x + y), tileops.stats()['compiles'])\n"
    )  # fmt: skip
    out = run_python(
        text, sample_bundle, TILEOPS_STRICT="1", TILEOPS_CACHE_DIR=str(tmp_path / "cache")
    )
    assert out.splitlines() == [
        "True", "[[2.0, 2.0], [2.0, 2.0]]", "True", "tileops::sample_axpy_1", "True 1",
    ]  # fmt: skip


# A program that a bundle has as it is, and that is tuned or says nothing about gradients.
PROGRAM = """
import sys, torch, tileops
import tileops.language as T

def doubled(A, block: int = 64):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block)) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2
    return B

def plain(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(N) as bx:
        B[bx] = A[bx] + 1
    return B

constant = tileops.jit(differentiable=False)
x, p = torch.randn(100), torch.ones(5, requires_grad=True)
if __name__ == "writing":
    tileops.bundle(sys.argv[1], [tileops.jit(doubled), constant(plain)], "cpu")
else:
    ops = tileops.load_bundle(sys.argv[1])
    tuned = tileops.autotune(configs=[{"block": 32}])(tileops.jit(doubled))
    op = tuned.op
    assert op is ops["tileops::doubled"] and constant(plain).op is ops["tileops::plain"]
    for call in (lambda: tuned(x, block=64), lambda: op(x, block=64), lambda: op(x, block=32)):
        assert torch.equal(call(), x * 2)
    print(ops["tileops::plain"](p).requires_grad, tileops.stats()["compiles"])
"""


def test_rules_of_an_adopted_op_are_the_programs(run_python: Run, tmp_path: Path) -> None:
    # What a call gives is no reason to tune, and the bundle has the config that it had as default.
    script = tmp_path / "programs.py"
    script.write_text(PROGRAM)
    text = f"import runpy, sys; runpy.run_path({str(script)!r}, run_name=sys.argv[2])"
    environment = {"TILEOPS_CACHE_DIR": str(tmp_path / "cache")}
    run_python(text, tmp_path / "bundle", "writing")
    out = run_python(text, tmp_path / "bundle", "adopting", **environment)
    assert out == "False 1"
