"""What a bundle says of an op is what its source said: fakes and calls agree for packed and raw tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tileops
import tileops.language as T
from tests.dtypes import pointer_programs as pointers

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
