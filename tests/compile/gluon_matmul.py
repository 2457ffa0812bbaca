"""A matrix product in Gluon, written by hand: what a generator of such launches would return."""

from __future__ import annotations

import torch

from examples import matmul
from tests.kit.traced import specialise
from tileops.codegen.kernel_code import KernelCode, KernelParam, LaunchCode, TensorMapSpec
from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.program import Program

BLOCK = (128, 256, 64)  # rows and columns of C, depth of one step

# A and B have rings of their own, of different depths.
SOURCE = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)

load_box = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
store_box = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
ROWS = gl.constexpr(128)
COLUMNS = gl.constexpr(256)
DEPTH = gl.constexpr(64)
A_SLOTS = gl.constexpr(3)
B_SLOTS = gl.constexpr(2)


@gluon.jit
def load(A, B, a, b, a_empty, a_full, b_empty, b_full, row, column, K):
    for i in range(gl.cdiv(K, DEPTH)):
        mbarrier.wait(a_empty.index(i % A_SLOTS), ((i // A_SLOTS) & 1) ^ 1)
        mbarrier.expect(a_full.index(i % A_SLOTS), A.block_type.nbytes)
        load_box(A, [row, i * DEPTH], a_full.index(i % A_SLOTS), a.index(i % A_SLOTS))
        mbarrier.wait(b_empty.index(i % B_SLOTS), ((i // B_SLOTS) & 1) ^ 1)
        mbarrier.expect(b_full.index(i % B_SLOTS), B.block_type.nbytes)
        load_box(B, [i * DEPTH, column], b_full.index(i % B_SLOTS), b.index(i % B_SLOTS))


@gluon.jit
def multiply(C, a, b, c, a_empty, a_full, b_empty, b_full, row, column, K):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, COLUMNS, 16])
    total = gl.zeros((ROWS, COLUMNS), gl.float32, layout)
    for i in range(gl.cdiv(K, DEPTH)):
        mbarrier.wait(a_full.index(i % A_SLOTS), (i // A_SLOTS) & 1)
        mbarrier.wait(b_full.index(i % B_SLOTS), (i // B_SLOTS) & 1)
        total = warpgroup_mma(a.index(i % A_SLOTS), b.index(i % B_SLOTS), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
        mbarrier.arrive(a_empty.index(i % A_SLOTS), count=1)
        mbarrier.arrive(b_empty.index(i % B_SLOTS), count=1)
    c.store(total.to(C.dtype))
    fence_async_shared()
    store_box(C, [row, column], c)
    tma.store_wait(pendings=0)


@gluon.jit
def main(A, B, C, K, columns):
    a = gl.allocate_shared_memory(A.dtype, [A_SLOTS] + A.block_type.shape, A.layout)
    b = gl.allocate_shared_memory(B.dtype, [B_SLOTS] + B.block_type.shape, B.layout)
    c = gl.allocate_shared_memory(C.dtype, C.block_type.shape, C.layout)
    a_empty = gl.allocate_shared_memory(gl.int64, [A_SLOTS, 1], mbarrier.MBarrierLayout())
    a_full = gl.allocate_shared_memory(gl.int64, [A_SLOTS, 1], mbarrier.MBarrierLayout())
    b_empty = gl.allocate_shared_memory(gl.int64, [B_SLOTS, 1], mbarrier.MBarrierLayout())
    b_full = gl.allocate_shared_memory(gl.int64, [B_SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(A_SLOTS):
        mbarrier.init(a_empty.index(i), count=1)
        mbarrier.init(a_full.index(i), count=1)
    for i in gl.static_range(B_SLOTS):
        mbarrier.init(b_empty.index(i), count=1)
        mbarrier.init(b_full.index(i), count=1)
    fence_async_shared()
    row = gl.program_id(0) // columns * ROWS
    column = gl.program_id(0) % columns * COLUMNS
    gl.warp_specialize(
        [
            (multiply, (C, a, b, c, a_empty, a_full, b_empty, b_full, row, column, K)),
            (load, (A, B, a, b, a_empty, a_full, b_empty, b_full, row, column, K)),
        ],
        [1],
        [24],
    )
"""


def program() -> Program:
    """C (M, N) = A (M, K) times B (K, N), float16, in tiles of ``BLOCK``; sizes at run time."""
    rows, columns, depth = BLOCK
    empty = torch.empty((512, 512), dtype=torch.float16, device="meta")
    blocks = {"block_M": rows, "block_N": columns, "block_K": depth}
    return specialise(matmul.matmul_dynamic, (empty, empty), **blocks)


def code(program: Program, source: str = SOURCE) -> KernelCode:
    """The launch of ``program``, which is made by the function of that name."""
    sizes: dict[str, Expr] = {size.var.name: size.var for size in program.sizes}
    number = {size.var.name: n for n, size in enumerate(program.sizes)}
    rows, columns, depth = BLOCK
    across = _tiles(sizes["N"], columns)
    params = (
        _tensor_map("A", 0, (rows, depth), (sizes["M"], sizes["K"])),
        _tensor_map("B", 1, (depth, columns), (sizes["K"], sizes["N"])),
        _tensor_map("C", 2, (rows, columns), (sizes["M"], sizes["N"])),
        KernelParam("K", "size", number["K"], "i32"),
        KernelParam("columns", "host", 0, "i32", value=across),
    )
    grid = fold.mul(across, _tiles(sizes["M"], rows))
    launch = LaunchCode("main", params, grid, num_warps=8, language="gluon")
    return KernelCode("triton", source, (launch,))


def _tiles(extent: Expr, size: int) -> Expr:
    wide = fold.cast(extent, fold.INT64)
    up = fold.add(wide, fold.const(size - 1, fold.INT64))
    return fold.binary("floordiv", up, fold.const(size, fold.INT64))


def _tensor_map(
    name: str, index: int, box: tuple[int, ...], shape: tuple[Expr, Expr]
) -> KernelParam:
    strides = (shape[1], fold.const(1, fold.INT64))
    spec = TensorMapSpec(box, shape, strides, swizzle=128)
    return KernelParam(name, "tensormap", index, "tensordesc", "float16", tensormap=spec)
