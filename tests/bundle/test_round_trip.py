"""What a bundle says of an op is what its source said: fakes and calls agree for packed and raw tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tileops
import tileops.language as T
from tests.programs import pointers as pointers

Run = Callable[..., str]


@tileops.jit(name="trip_unpacked")
def unpacked(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.int4)
    B = T.empty((M, N), T.float32)
    with T.Kernel(M) as bx:
        for i in T.Parallel(N):
            B[bx, i] = T.cast(A[bx, i], T.float32)
    return B


@tileops.jit(name="trip_packed")
def packed(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float32)
    B = T.empty((M, N), T.int4)
    with T.Kernel(M) as bx:
        for i in T.Parallel(N):
            B[bx, i] = T.cast(A[bx, i], T.int4)
    return B


FAKES = """
import sys, torch, tileops
from torch._subclasses.fake_tensor import FakeTensorMode
tileops.load_bundle(sys.argv[1])
t = torch.ops.tileops
a = torch.randint(-128, 127, (32, 32), dtype=torch.int8)
for op, x in ((t.trip_unpacked, a), (t.trip_packed, torch.randn(32, 64))):
    real = op(x)
    with FakeTensorMode():
        fake = op(torch.empty(x.shape, dtype=x.dtype))
    assert (fake.shape, fake.dtype) == (real.shape, real.dtype), (fake, real.shape)
    assert torch.equal(torch.compile(op, backend="eager", fullgraph=True)(x), real)
    torch.library.opcheck(op.default, (x,))
print(tuple(t.trip_unpacked(a).shape), torch.equal(t.trip_packed(t.trip_unpacked(a)), a))
"""


def test_packed_tensors(tmp_path: Path, run_python: Run) -> None:
    programs = [(unpacked, [{"M": 32, "N": 64}]), (packed, [{"M": 32, "N": 64}])]
    assert run_python(FAKES, tileops.bundle(tmp_path / "b", programs, "cpu")) == "(32, 64) True"


RAW = """
import sys, torch, tileops
from torch._subclasses.fake_tensor import FakeTensorMode
((name, op),) = tileops.load_bundle(sys.argv[1]).items()
a, c = torch.randn(9, 5), torch.zeros(9, 5)
with FakeTensorMode():
    op(torch.empty(9, 5), torch.empty(9, 5), 9, 5)
torch.compile(op, backend="eager", fullgraph=True)(a, c, 9, 5)
print(name, torch.equal(c, a + 1))
"""


def test_tensors_taken_for_their_address(tmp_path: Path, run_python: Run) -> None:
    folder = tileops.bundle(tmp_path / "b", pointers.from_pointer, "cpu")
    assert run_python(RAW, folder) == "tileops::from_pointer True"


@tileops.jit(name="trip_norm")
def norm(X, W, rows: int = 4):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.bfloat16, T.float32)
    X: T.Tensor((..., N), dt)
    W: T.Tensor((N,), dt)
    Y = T.empty((..., N), dt)
    scale = T.empty((...,), T.float32)
    with T.Kernel(T.ceildiv(X.shape[0], rows)) as bx:
        x = T.alloc_fragment((rows, N), T.float32)
        square = T.alloc_fragment((rows, N), T.float32)
        s = T.alloc_fragment((rows,), T.float32)
        for i, j in T.Parallel(rows, N):
            x[i, j] = T.cast(X[bx * rows + i, j], T.float32)
            square[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(square, s, dim=1)
        for i, j in T.Parallel(rows, N):
            Y[bx * rows + i, j] = T.cast(x[i, j] * T.rsqrt(s[i] / N + 1e-6), dt) * W[j]
        T.copy(s, scale[bx * rows])
    return Y, scale


NORM = """
import sys, torch, tileops
from torch._subclasses.fake_tensor import FakeTensorMode
tileops.load_bundle(sys.argv[1])
op = torch.ops.tileops.trip_norm
for dtype in map(lambda name: getattr(torch, name), sys.argv[2].split(",")):
    for shape in ((16,), (5, 16), (2, 3, 16), (0, 16), (2, 0, 16)):
        x, w = torch.randn(shape).to(dtype), torch.randn(16).to(dtype)
        for _ in range(3):
            y, scale = op(x, w)
        assert (y.shape, y.dtype, scale.shape) == (shape, dtype, shape[:-1]), (y, scale)
        torch.testing.assert_close(scale, (x.float() ** 2).sum(-1))
        with FakeTensorMode():
            fakes = op(torch.empty(shape, dtype=dtype), torch.empty(16, dtype=dtype))
        assert [(f.shape, f.dtype) for f in fakes] == [(y.shape, dtype), (scale.shape, torch.float32)]
        torch.library.opcheck(op.default, (x, w))
    compiled = torch.compile(op, backend="eager", fullgraph=True, dynamic=True)
    for shape in ((2, 3, 16), (4, 5, 16)):
        x, w = torch.randn(shape).to(dtype), torch.randn(16).to(dtype)
        assert all(map(torch.equal, compiled(x, w), op(x, w)))
try:
    op(torch.ones(2, 16, device="meta"), torch.ones(16, device="meta"))
    print("ran")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
for call in (lambda: op(torch.ones(2, 16, dtype=torch.float64), torch.ones(16)),
             lambda: op(torch.ones(2, 16), torch.ones(16, dtype=torch.float16)),
             lambda: op(torch.ones(2, 16, dtype=torch.float32), torch.ones(16)),
             lambda: op(torch.ones(2, 8, 16).transpose(0, 1).half(), torch.ones(16).half()),
             lambda: op(torch.ones(2, 8).half(), torch.ones(8).half())):
    try:
        call()
        print("ran")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


def test_dtype_variables_and_leading_dimensions(tmp_path: Path, run_python: Run) -> None:
    configs = [{"N": 16, "dt": "float16"}, {"N": 16, "dt": "bfloat16"}]
    said = run_python(
        NORM, tileops.bundle(tmp_path / "b", (norm, configs), "cpu"), "float16,bfloat16"
    )
    fake, wrong, mixed, missing, layout, size = said.splitlines()
    assert fake.startswith(
        "CompileMissError: trip_norm: no kernel with rows = None, dt = 'float32'"
    )
    assert wrong == (
        "ArgumentTypeError: trip_norm: argument 'X': expected dtype float16, bfloat16 or float32 "
        "(dt), got float64"
    )
    assert mixed == (
        "ArgumentTypeError: trip_norm: argument 'W': expected dtype float32, which 'X' has (dt), "
        "got float16"
    )
    assert missing.startswith("CompileMissError: trip_norm: no kernel for cpu with rows = None, dt")
    assert "dt = 'float32'" in missing
    assert "viewed as one dimension with one stride" in layout
    assert "N = 8" in size
    every = run_python(
        NORM, tileops.bundle(tmp_path / "c", (norm, [{"N": 16}]), "cpu"), "float16,bfloat16,float32"
    )
    assert [every.splitlines()[n] for n in (0, 3)] == ["ran", "ran"]


LOAD_BOTH = """
import sys, torch, tileops
for path in sys.argv[1:]:
    tileops.load_bundle(path)
op = torch.ops.tileops.trip_norm
for dtype in (torch.float16, torch.bfloat16):
    print(op(torch.ones(2, 3, 16, dtype=dtype), torch.ones(16, dtype=dtype))[0].dtype)
"""


def test_two_bundles_of_one_op_add_their_dtypes(tmp_path: Path, run_python: Run) -> None:
    paths = [
        tileops.bundle(tmp_path / name, (norm, [{"N": 16, "dt": name}]), "cpu")
        for name in ("float16", "bfloat16")
    ]
    assert run_python(LOAD_BOTH, *paths) == "torch.float16\ntorch.bfloat16"


@tileops.jit(name="trip_negated")
def negated(X):
    dt = T.DTypeVar("dt", T.float16, T.int8)
    X: T.Tensor((...,), dt)
    Y = T.empty((...,), dt)
    with T.Kernel(T.ceildiv(X.shape[0], 64)) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = -X[bx * 64 + i]
    return Y


NEGATED = """
import sys, torch, tileops
((_, op),) = tileops.load_bundle(sys.argv[1]).items()
for dtype in (torch.float16, torch.int8):
    x = torch.arange(30).reshape(2, 3, 5).to(dtype)
    assert torch.equal(op(x), -x) and torch.equal(op(x[0, 0, 0]), -x[0, 0, 0])
print("ok")
"""


def test_a_program_without_sizes_is_bundled_for_each_dtype(tmp_path: Path, run_python: Run) -> None:
    assert run_python(NEGATED, tileops.bundle(tmp_path / "b", negated, "cpu")) == "ok"


@tileops.jit(name="trip_optional")
def optional(X, scale=None):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.float32)
    X: T.Tensor((..., N), dt)
    scale: T.Tensor((N,), dt)
    Y = T.empty((..., N), dt)
    with T.Kernel(X.shape[0]) as row:
        for j in T.Parallel(N):
            Y[row, j] = X[row, j] if scale is None else X[row, j] * scale[j]
    return Y


OPTIONAL = """
import sys, torch, tileops
((_, op),) = tileops.load_bundle(sys.argv[1]).items()
x, w = torch.randn(2, 3, 16), torch.randn(16)
print(torch.equal(op(x), x), torch.equal(op(x.half()), x.half()))
try:
    op(x, w)
except Exception as error:
    print(type(error).__name__)
"""


def test_tensors_that_are_left_out(tmp_path: Path, run_python: Run) -> None:
    folder = tileops.bundle(tmp_path / "b", (optional, [{"N": 16, "scale": None}]), "cpu")
    assert run_python(OPTIONAL, folder) == "True True\nCompileMissError"
