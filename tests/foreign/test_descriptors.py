"""Tensor maps: what kernels that copy boxes get, from Triton's descriptors and T.tensor_map."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

import tileops
import tileops.language as T
from tests.foreign import converted_kernels, kernels, launched
from tests.foreign.launched import Launched
from tileops.errors import (
    ArgumentError,
    DriverError,
    ProgramError,
    ToolchainError,
    UnsupportedConstructError,
)

A, B = 0x7F0000001000, 0x7F0000002000
boxes = tileops.cuda(converted_kernels.BOXES)
_numbers = itertools.count()


def copied(launch: Any, **options: Any) -> Any:
    """A program over X with the launch ``launch(X, Y, M, N)`` as its only one."""

    @tileops.jit(name=f"foreign_boxes_{next(_numbers)}", **options)
    def program(X):
        M, N = T.dynamic("M, N")
        X: T.Tensor((M, N), T.float32)
        Y = T.empty((M, N), T.float32)
        with T.Extern():
            launch(X, Y, M, N)
        return Y

    return program


@T.macro
def from_tensors(X, Y, M, N):
    kernels.boxes_plus[(T.ceildiv(M, 16),)](
        TensorDescriptor.from_tensor(X, [16, 32]), M,
        TensorDescriptor(Y, [M, N], [N, 1], [16, 32], padding="nan"), 16,
    )  # fmt: skip


@T.macro
def by_layout(X, Y, M, N):
    layout = NVMMASharedLayout(128, 32, rank=2)
    source = GluonDescriptor.from_tensor(X, [16, 32], layout)
    kernels.gluon_boxes[(T.ceildiv(M, 16),)](
        source, GluonDescriptor.from_tensor(Y, [16, 32], layout), 16 * 32 * 4
    )


@T.macro
def in_cuda(X, Y, M, N):
    launch = boxes["doubled_boxes"].launch(grid=(T.ceildiv(N, 32), T.ceildiv(M, 16)), block=128)
    launch(T.tensor_map(X, [16, 32]), Y, M, N)


def numbers(*values: tuple[str, int]) -> list[str]:
    return [struct.pack(f"<{kind}", value).hex() for kind, value in values]


def test_a_descriptor_is_a_map_and_its_extents_and_strides(fake: Any) -> None:
    op, sizes = Launched(copied(from_tensors)), {"M": 40, "N": 36}
    op.add(op.wanted(sizes))
    op.run(sizes, [A, B])
    maps = fake.log("encode")
    assert [m["address"] for m in maps] == [A, B]
    assert [m["fill"] for m in maps] == [0, 1]
    for one in maps:
        assert (one["extents"], one["strides"], one["box"]) == ([36, 40], [144], [32, 16])
        assert one["type"] == 7  # float32
        assert one["swizzle"] == 3  # 128 bytes
    seen = numbers(("i", 40), ("i", 36), ("q", 36), ("q", 1))
    params = fake.log("launch")[-1]["params"]
    assert len(params[0]) == len(params[6]) == 2 * 128
    assert params[1:5] == params[7:11] == seen
    assert params[5] == numbers(("i", 40))[0]


def test_a_layout_of_gluons(fake: Any) -> None:
    op, sizes = Launched(copied(by_layout)), {"M": 40, "N": 36}
    op.add(op.wanted(sizes))
    op.run(sizes, [A, B])
    assert [m["box"] for m in fake.log("encode")] == [[32, 16], [32, 16]]
    other = Launched(copied(by_layout)).provider
    assert "NVMMASharedLayout" in str(
        other.request_for(op.wanted(sizes)).program.externs[0].args[0].text()
    )


def test_a_map_for_cuda(fake: Any) -> None:
    op, sizes = Launched(copied(in_cuda)), {"M": 40, "N": 36}
    op.add(op.wanted(sizes))
    op.run(sizes, [A, B])
    (encoded,) = fake.log("encode")
    assert (encoded["extents"], encoded["box"], encoded["swizzle"]) == ([36, 40], [32, 16], 0)
    params = fake.log("launch")[-1]["params"]
    assert params[1:] == numbers(("Q", B), ("i", 40), ("i", 36))


def test_a_gpu_without_maps_gets_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched, "TARGET", "cuda:sm_80")
    op = Launched(copied(from_tensors))
    params = op.compiled(op.wanted({"M": 40, "N": 36})).manifest["record"]["launches"][0]["params"]
    kinds = [p.get("type", p["kind"]) for p in params]
    rest = ["i32", "i32", "i64", "i64"]
    flags = kinds.count("i1") // 2
    one = ["tensor", *["i64"] * 4, *["i1"] * flags, *rest]
    assert kinds == [*one, "i32", *one, "global_scratch", "profile_scratch"]


@pytest.mark.parametrize(
    ("sizes", "address", "message"),
    [
        ({"M": 40, "N": 33}, A, r"stride 0 to be a multiple of 16 bytes, got 132"),
        ({"M": 40, "N": 36}, A + 4, rf"an address divisible by 16, got {A + 4}"),
    ],
)
def test_what_a_map_cannot_describe(
    fake: Any, sizes: dict[str, int], address: int, message: str
) -> None:
    op = Launched(copied(from_tensors))
    op.add(op.wanted(sizes))
    fake.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(ArgumentError, match=rf"tensor map of tensor 0: expected {message}"):
        op.run(sizes, [address, B])


def test_what_the_driver_alone_knows(fake: Any) -> None:
    op, sizes = Launched(copied(from_tensors)), {"M": 40, "N": 36}
    op.add(op.wanted(sizes))
    fake.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(DriverError, match=r"tensor map of tensor 0: cuTensorMapEncodeTiled"):
        op.run(sizes, [A, B])


@T.macro
def no_power(X, Y, M, N):
    TensorDescriptor.from_tensor(X, [16, 24])


@T.macro
def short_row(X, Y, M, N):
    TensorDescriptor.from_tensor(X, [16, 2])


@T.macro
def another_rank(X, Y, M, N):
    T.tensor_map(X, [16])


@T.macro
def odd_stride(X, Y, M, N):
    TensorDescriptor(X, [M, N], [33, 1], [16, 32])


@T.macro
def last_stride(X, Y, M, N):
    TensorDescriptor(X, [N, M], [1, N], [16, 32])


@T.macro
def open_box(X, Y, M, N):
    T.tensor_map(X, [M, 32])


@T.macro
def wide_box(X, Y, M, N):
    T.tensor_map(X, [16, 512])


@T.macro
def narrow_swizzle(X, Y, M, N):
    T.tensor_map(X, [16, 32], swizzle=64)


@T.macro
def no_padding(X, Y, M, N):
    TensorDescriptor.from_tensor(X, [16, 32], padding="one")


@T.macro
def of_a_slice(X, Y, M, N):
    T.tensor_map(X[0:4, 0:4], [4, 4])


@T.macro
def of_a_workspace(X, Y, M, N):
    kernels.boxes_plus[(1,)](T.tensor_map(T.alloc_global((M, N), T.float32), [16, 32]), M, Y, 16)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (no_power, r"block_shape of TensorDescriptor.from_tensor\n *expected: powers of 2"),
        (short_row, r"a row of the box(.|\n)*a multiple of 16 bytes\n *found: +2 elements of float32, 8 bytes"),
        (another_rank, r"T.tensor_map of `X`(.|\n)*the box 16(.|\n)*2 extents and 2 strides"),
        (odd_stride, r"stride 0 of TensorDescriptor of `X`\n *expected: a multiple of 16 bytes\n *found: +33 elements of 4 bytes"),
        (last_stride, r"the last stride of TensorDescriptor of `X`\n *expected: 1"),
        (open_box, r"numbers in the box, which are known here"),
        (wide_box, r"the box of T.tensor_map\n *expected: at most 256 elements"),
        (narrow_swizzle, r"the swizzle of T.tensor_map(.|\n)*64 for a row of 128 bytes"),
        (no_padding, r"the padding of TensorDescriptor.from_tensor\n *expected: zero or nan"),
        (of_a_slice, r"T.tensor_map describes a tensor of the program, whole"),
        (of_a_workspace, r"`src` of boxes_plus is a descriptor of the workspace"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_misused_maps(launch: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        copied(launch).get_tir()
    assert "test_descriptors.py" in str(caught.value)


def test_maps_by_im2col() -> None:
    hopper = pytest.importorskip("triton.experimental.gluon.nvidia.hopper")
    if not hasattr(hopper, "TensorDescriptorIm2Col"):
        pytest.skip("this Triton has no such descriptor")

    @T.macro
    def by_im2col(X, Y, M, N):
        hopper.TensorDescriptorIm2Col(X, [M, N])

    with pytest.raises(
        UnsupportedConstructError, match=r"TensorDescriptorIm2Col: a descriptor by im2col"
    ):
        copied(by_im2col).get_tir()


def test_a_write_through_a_map_is_declared() -> None:
    @T.macro
    def backwards(X, Y, M, N):
        kernels.boxes_plus[(1,)](
            TensorDescriptor.from_tensor(Y, [16, 32]),
            M,
            TensorDescriptor.from_tensor(X, [16, 32]),
            16,
        )

    op = Launched(copied(backwards))
    with pytest.raises(ToolchainError, match=r"boxes_plus writes its argument `dst`"):
        op.compiled(op.wanted({"M": 16, "N": 32}))
