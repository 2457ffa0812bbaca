"""Products of tiles by the steps of ``TensorCoreIntrinEmitter``, as TileLang programs write them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import ArgumentError, UnsupportedConstructError

CASES = [
    (dtype, sums, a_turned, b_turned, warps, tile)
    for dtype, sums in (("float16", "float32"), ("bfloat16", "float32"), ("float16", "float16"),
                        ("int8", "int32"), ("float8_e4m3fn", "float32"), ("float32", "float32"))
    for a_turned, b_turned, warps, tile in ((False, True, (2, 2), (32, 16)),
                                            (True, False, (2, 2), (16, 24)))
]  # fmt: skip


def emitter(dtype: str, sums: str, **options: Any) -> Any:
    with tileops.install_alias("tilelang"):
        from tilelang.cuda.intrinsics.macro.mma_macro_generator import TensorCoreIntrinEmitter
    return TensorCoreIntrinEmitter(a_dtype=dtype, b_dtype=dtype, accum_dtype=sums, **options)


def program_of(
    dtype: str, sums: str, a_turned: bool, b_turned: bool, warps: tuple[int, int],
    tile: tuple[int, int], is_m_first: bool = False,
) -> Any:  # fmt: skip
    chunk, M, N, K = 32, 2 * warps[0] * tile[0], warps[1] * tile[1], 64
    steps = emitter(
        dtype, sums, a_transposed=a_turned, b_transposed=b_turned, block_row_warps=warps[0],
        block_col_warps=warps[1], warp_row_tiles=tile[0], warp_col_tiles=tile[1], chunk=chunk,
        is_m_first=is_m_first,
    )  # fmt: skip
    rows, columns = M // 2, N
    x, y = steps.micro_size_x, steps.micro_size_y

    @tileops.jit(name=f"by_steps_{dtype}_{sums}_{tile[0]}_{int(is_m_first)}")
    def by_steps(A, B):
        A: T.Tensor((K, M) if a_turned else (M, K), dtype)
        B: T.Tensor((N, K) if b_turned else (K, N), dtype)
        C = T.empty((M, N), sums)
        with T.Kernel(2, threads=steps.threads) as by:
            a = T.alloc_shared((chunk, rows) if a_turned else (rows, chunk), dtype)
            b = T.alloc_shared((columns, chunk) if b_turned else (chunk, columns), dtype)
            out = T.alloc_shared((rows // x, columns // y, x, y), sums)
            own_a = T.alloc_local((steps.warp_rows * steps.local_size_a,), dtype)
            own_b = T.alloc_local((steps.warp_cols * steps.local_size_b,), dtype)
            own_c = T.alloc_local((steps.warp_rows * steps.warp_cols * steps.local_size_out,), sums)
            T.clear(own_c)
            for k in T.Pipelined(K // chunk, num_stages=2):
                if a_turned:
                    T.copy(A[k * chunk, by * rows], a)
                else:
                    T.copy(A[by * rows, k * chunk], a)
                if b_turned:
                    T.copy(B[0, k * chunk], b)
                else:
                    T.copy(B[k * chunk, 0], b)
                for ki in T.serial(chunk // steps.micro_size_k):
                    steps.ldmatrix_a(own_a, a, ki)
                    steps.ldmatrix_b(own_b, b, ki)
                    steps.mma(own_a, own_b, own_c)
            if is_m_first:
                steps.stmatrix(own_c, C, by, 0)
            else:
                steps.stmatrix(own_c, out)
                for i, j in T.Parallel(rows, columns):
                    C[by * rows + i, j] = out[i // x, j // y, i % x, j % y]
        return C

    def operands() -> tuple[torch.Tensor, torch.Tensor]:
        # Quarters of small integers: their products and sums are exact in each dtype.
        unit = 1 if dtype == "int8" else 0.25
        shapes = (K, M) if a_turned else (M, K), (N, K) if b_turned else (K, N)
        made = [torch.randint(-3, 4, s) * unit for s in shapes]
        return made[0].to(T.dtype(dtype).as_torch()), made[1].to(T.dtype(dtype).as_torch())

    return by_steps, operands


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_steps_make_the_product(case: Any) -> None:
    program, operands = program_of(*case, is_m_first=case[1] == case[0])
    a, b = operands()
    exact = (a.double().T if case[2] else a.double()) @ (b.double().T if case[3] else b.double())
    assert torch.equal(program(a, b).double(), exact)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("case", CASES[::4], ids=lambda c: "-".join(map(str, c)))
def test_steps_compile_for_gpus(case: Any, target: str) -> None:
    program, operands = program_of(*case)
    kernel = tileops.compile(program.get_tir(*operands()), target=target)
    source = kernel.get_kernel_source()
    assert "warp_mma<" in source
    assert ("load_matrix<" in source) == (T.dtype(case[0]).bits == 16)


def test_tiles_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="expected warp_row_tiles a multiple of 16, got 24"):
        emitter("float16", "float32", warp_row_tiles=24)
    with pytest.raises(UnsupportedConstructError, match="reduce_k or packed"):
        emitter("float16", "float32", warp_row_tiles=16, reduce_k=2)
