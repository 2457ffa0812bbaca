"""Tensor maps: what Triton expects of each dtype and box, and the boxes that are refused."""

from __future__ import annotations

import pytest

from tileops.codegen.kernel_code import KernelCode, KernelParam, LaunchCode, TensorMapSpec
from tileops.compiler import compile_kernel
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.target import parse_target

ONE = fold.const(1, fold.INT64)
SOURCE = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

load_box = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
store_box = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit
def main(A, B):
    box = gl.allocate_shared_memory(A.dtype, A.block_type.shape, A.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    fence_async_shared()
    mbarrier.expect(full, A.block_type.nbytes)
    load_box(A, [START], full, box)
    mbarrier.wait(full, 0)
    store_box(B, [START], box)
    tma.store_wait(pendings=0)
"""


def copy(dtype: str, box: tuple[int, ...], swizzle: int) -> KernelCode:
    """One box from A to B."""
    spec = TensorMapSpec(box, (ONE,) * len(box), (ONE,) * len(box), swizzle)
    params = tuple(
        KernelParam(name, "tensormap", n, "tensordesc", dtype, tensormap=spec)
        for n, name in enumerate("AB")
    )
    source = SOURCE.replace("START", ", ".join("0" * len(box)))
    launch = LaunchCode("main", params, ONE, num_warps=4, language="gluon")
    return KernelCode("triton", source, (launch,))


# Members of CUtensorMapDataType (cuda.h); the 8-bit floats are bytes.
TYPES = {
    "int8": 0, "uint8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "int16": 1, "uint16": 1, "uint32": 2, "int32": 3,
    "uint64": 4, "int64": 5, "float16": 6, "float32": 7, "tfloat32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
def test_the_element_type_is_the_drivers(dtype: str) -> None:
    (image,) = compile_kernel(copy(dtype, (8, 64), 32), parse_target("cuda:sm_90"), {}).launches
    assert [one["elem_type"] for one in image.tensormaps] == [TYPES[dtype]] * 2
    assert image.threads == 128


@pytest.mark.parametrize(
    ("box", "swizzle", "real"),
    [
        ((1024,), 0, [256]),
        ((8, 8), 0, [8, 8]),
        ((64, 1024), 0, [64, 256]),
        ((512, 64), 128, [256, 64]),
        ((64, 256), 64, [64, 32]),
        ((2, 4, 16), 32, [2, 4, 16]),
        ((1, 128, 1, 64), 128, [1, 128, 1, 64]),
        ((2, 2, 2, 8, 64), 128, [2, 2, 2, 8, 64]),
    ],
)
def test_the_box_is_the_one_that_triton_copies(
    box: tuple[int, ...], swizzle: int, real: list[int]
) -> None:
    code = copy("float16", box, swizzle)
    (image,) = compile_kernel(code, parse_target("cuda:sm_90"), {}).launches
    driver = {0: 0, 32: 1, 64: 2, 128: 3}[swizzle]
    assert image.tensormaps == ({"box": real, "swizzle": driver, "elem_type": 6},) * 2


@pytest.mark.parametrize(
    ("dtype", "box", "swizzle", "words"),
    [
        ("bool", (8, 64), 32, "no bool elements"),
        ("float16", (), 0, "1 to 5 dimensions"),
        ("float16", (1, 1, 1, 1, 8, 64), 128, "1 to 5 dimensions"),
        ("float16", (8, 48), 32, "power of 2"),
        ("float16", (8, 0), 32, "power of 2"),
        ("float16", (8, 4), 0, "at least 16 bytes, this one 8"),
        ("float16", (8, 64), 16, "not 16"),
        ("float16", (8, 32), 128, "8 rows of as many bytes"),
        ("float16", (4, 64), 128, "8 rows of as many bytes"),
        ("float16", (128,), 32, "8 rows of as many bytes"),
    ],
)
def test_a_box_that_would_end_the_process_is_an_error(
    dtype: str, box: tuple[int, ...], swizzle: int, words: str
) -> None:
    with pytest.raises(InternalError, match=words):
        compile_kernel(copy(dtype, box, swizzle), parse_target("cuda:sm_90"), {})
