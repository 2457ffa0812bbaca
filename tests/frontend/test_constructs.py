"""What the tile constructs record: copies, gemm, reductions, scans, atomics."""

from __future__ import annotations

import pytest

import tileops.language as T
from tests.kit.traced import body_of, lines


# -- copies ------------------------------------------------------------------------------------------
def test_a_start_element_takes_the_other_sides_extents_aligned_right() -> None:
    def program(A):
        B, M, N = T.const("B, M, N")
        A: T.Tensor((B, M, N), T.float16)
        with T.Kernel(1) as bx:
            tile = T.alloc_shared((64, 32), T.float16)
            row = T.alloc_fragment((32,), T.float32)
            T.copy(A[bx, 0, 8], tile, coalesced_width=8, disable_tma=True)
            T.copy(A[bx, 5, 0], row)
            T.copy(row, tile[3, 0])

    assert body_of(program) == lines("""
        copy %A.3[bx.4 : +1, 0 : +64, 8 : +32] -> %tile.5[0 : +64, 0 : +32]
        copy %A.3[bx.4 : +1, 5 : +1, 0 : +32] -> %row.6[0 : +32]
        copy %row.6[0 : +32] -> %tile.5[3 : +1, 0 : +32]
    """)


def test_the_side_closer_to_the_threads_gives_the_extents() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float16)
        with T.Kernel(1):
            wide = T.alloc_shared((128,), T.float16)
            narrow = T.alloc_fragment((64,), T.float16)
            T.copy(A[0:64], wide)
            T.copy(narrow, A[0:128])

    assert body_of(program) == lines("""
        copy %A.1[0 : +128] -> %wide.3[0 : +128]
        copy %narrow.4[0 : +64] -> %A.1[0 : +64]
    """)


def test_slices_and_dimensions_of_one() -> None:
    def program(A):
        B, S, H, D = T.const("B, S, H, D")
        A: T.Tensor((B, S, H, D), T.float16)
        with T.Kernel(1) as bx:
            tile = T.alloc_shared((64, D), T.float16)
            stages = T.alloc_shared((2, 64, D), T.float16)
            T.copy(A[0, bx * 64 : (bx + 1) * 64, 3, :], tile)
            T.copy(tile, stages[bx % 2, :, :])
            T.copy(A[-1, bx : bx + 64, -2, 0:-16], tile)

    assert body_of(program, {"B": 2, "S": 99, "H": 4, "D": 80}) == lines("""
        copy %A.0[0 : +1, (bx.1 * 64) : +64, 3 : +1, 0 : +80] -> %tile.2[0 : +64, 0 : +80]
        copy %tile.2[0 : +64, 0 : +80] -> %stages.3[(bx.1 % 2) : +1, 0 : +64, 0 : +80]
        copy %A.0[1 : +1, bx.1 : +64, 2 : +1, 0 : +80] -> %tile.2[0 : +64, 0 : +80]
    """)


def test_a_copy_of_one_element_is_a_store_that_casts() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float16)
        with T.Kernel(1):
            tile = T.alloc_shared((4,), T.float32)
            T.copy(A[1], tile[2])

    assert body_of(program) == "%tile.3[2] = f32(%A.1[1])"


def test_fill_and_clear_take_buffers_slices_elements_and_variables() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float16)
        with T.Kernel(1):
            tile = T.alloc_fragment((4, 8), T.int32)
            x = T.alloc_var(T.float32)
            T.fill(tile, 1.0)
            T.clear(tile[1:3, 0:4])
            T.fill(tile[0, 0], 7)
            T.clear(x)

    assert body_of(program) == lines("""
        fill %tile.3[0 : +4, 0 : +8] = 1
        fill %tile.3[1 : +2, 0 : +4] = 0
        %tile.3[0, 0] = 7
        %x.4[0] = 0.0f32
    """)


def test_transpose_reshape_view_and_im2col() -> None:
    def program(A):
        N, H, W, C = T.const("N, H, W, C")
        A: T.Tensor((N, H, W, C), T.float16)
        with T.Kernel(1) as bx:
            a = T.alloc_shared((64, 32), T.float16)
            b = T.alloc_shared((32, 64), T.float16)
            T.im2col(A, a, bx, 0, 3, 1, 1, 1)
            T.transpose(a, b)
            rows = T.reshape(b, (4, 512))
            bits = T.view(b, dtype=T.uint16)
            rows[0, 0] = 1.0
            bits[0, 1] = 2

    assert body_of(program) == lines("""
        im2col %A.4 -> %a.6[0 : +64, 0 : +32] at bx.5, 0 k3 s1 d1 p1
        transpose %a.6[0 : +64, 0 : +32] -> %b.7[0 : +32, 0 : +64]
        view %rows.8: f16[4, 512] shared of %b.7
        view %bits.9: u16[32, 64] shared of %b.7
        %rows.8[0, 0] = f16(1.0f32)
        %bits.9[0, 1] = 2u16
    """)


def test_another_view_of_a_tensors_storage() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N, 4, 4), T.float32)
        flat = T.Tensor((N * 4, 4), T.float32, A.data)
        with T.Kernel(1) as bx:
            flat[bx, 0] = 1.0

    assert body_of(program) == lines("""
        view %flat.2: f32[(N.0 * 4), 4] global of %A.1
        %flat.2[bx.3, 0] = 1.0f32
    """)


# -- tile compute --------------------------------------------------------------------------------------
def test_gemm_flags_by_position_and_a_clear_known_at_run_time() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float16)
        with T.Kernel(1):
            a = T.alloc_shared((32, 64), T.float16)
            b = T.alloc_shared((16, 32), T.float16)
            c = T.alloc_fragment((64, 16), T.float32)
            for k in T.Pipelined(4, num_stages=2):
                T.gemm(a, b, c, True, True, T.GemmWarpPolicy.FullCol, k == 0)

    assert "clear (k.6 == 0) full_col" in body_of(program)
    assert " ta tb " in body_of(program)


@pytest.mark.parametrize(
    "name", ["sum", "max", "min", "absmax", "abssum", "bitand", "bitor", "bitxor"]
)
def test_reductions(name: str) -> None:
    def program(A, kind):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            x = T.alloc_fragment((8, 16), T.int32)
            kept = T.alloc_fragment((8, 1), T.int32)
            dropped = T.alloc_fragment((16,), T.int32)
            getattr(T, f"reduce_{kind}")(x, kept)
            T.reduce(x, dropped, kind, 0, True)

    assert body_of(program, kind=name) == lines(f"""
        reduce.{name} %x.3[0 : +8, 0 : +16] -> %kept.4[0 : +8, 0 : +1] dim 1 clear
        reduce.{name} %x.3[0 : +8, 0 : +16] -> %dropped.5[0 : +16] dim 0 clear
    """)


def test_reduce_folds_in_the_old_value_and_reduces_slices_and_rows() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            x = T.alloc_fragment((8, 16), T.float32)
            one = T.alloc_fragment((1,), T.float32)
            out = T.alloc_fragment((8,), T.float32)
            T.reduce_max(x, out, dim=1, clear=False, nan_propagate=True)
            T.reduce_sum(x[2, :], one)
            T.reduce_sum(out, one, dim=0)

    text = body_of(program)
    assert "dim 1 nan" in text
    assert "reduce.sum %out.5[0 : +8] -> %one.4[0 : +1] dim 0 clear" in text


def test_scans() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            x = T.alloc_shared((8, 16), T.float32)
            y = T.alloc_shared((8, 16), T.float32)
            T.cumsum(x, dim=-1, reverse=True)
            T.cummax(x, y)

    assert body_of(program) == lines("""
        scan.sum %x.3[0 : +8, 0 : +16] -> %x.3[0 : +8, 0 : +16] dim 1 reverse
        scan.max %x.3[0 : +8, 0 : +16] -> %y.4[0 : +8, 0 : +16] dim 0
    """)


def test_reducers_of_both_forms_collect_contributions() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            out = T.alloc_fragment((4,), T.float32)
            new = T.alloc_reducer((4,), T.float32, "max")
            T.reducer_init(new, 0)
            old = T.alloc_reducer((4,), T.float32, replication="all")
            T.clear(old)
            for i, j in T.Parallel(4, 8):
                T.reducer_update(new[i], A[j])
                old[i] += A[j]
            T.finalize_reducer(new, out)
            T.finalize_reducer(old)

    assert body_of(program) == lines("""
        fill %new.4[0 : +4] = 0.0f32
        fill %old.5[0 : +4] = 0.0f32
        parallel i.6, j.7 in [4, 8]:
          atomic.max %new.4[i.6 : +1], %A.1[j.7] relaxed
          atomic.add %old.5[i.6 : +1], %A.1[j.7] relaxed
        copy %new.4[0 : +4] -> %out.3[0 : +4]
    """)


def test_any_of_and_all_of() -> None:
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1):
            x = T.alloc_shared((2, 16), T.int32)
            if T.any_of(x[1, 0:8]):
                A[0] = 1

    assert body_of(program) == lines("""
        parallel i.6 in [8]:
          %flags.4[i.6] = (%x.3[1, i.6] != 0)
        reduce.bitor %flags.4[0 : +8] -> %flag.5[0 : +1] dim 0 clear
        if %flag.5[0]:
          %A.1[0] = 1
    """)


# -- atomics -------------------------------------------------------------------------------------------
def test_atomics_on_elements_and_on_tiles() -> None:
    def program(A):
        M, N = T.const("M, N")
        A: T.Tensor((M, N), T.float32)
        with T.Kernel(1) as bx:
            tile = T.alloc_fragment((4, 8), T.float32)
            T.atomic_add(A[bx, 0], 1, memory_order="acq_rel")
            T.atomic_add(A[bx, 0], tile, use_tma=True)
            T.atomic_min(A[bx : bx + 4, 0:8], tile)
            before = T.atomic_max(A[0, 0], tile[0, 0], return_prev=True)
            T.atomic_store(A[0, 1], before)
            for i, j in T.Parallel(4, 4):
                T.atomic_addx2(A[i, j * 2], tile[i, j * 2])

    assert body_of(program) == lines("""
        atomic.add %A.2[bx.3 : +1, 0 : +1], 1.0f32 acq_rel
        atomic.add %A.2[bx.3 : +4, 0 : +8], %tile.4[0 : +4, 0 : +8] relaxed
        atomic.min %A.2[bx.3 : +4, 0 : +8], %tile.4[0 : +4, 0 : +8] relaxed
        previous.5 = atomic.max %A.2[0 : +1, 0 : +1], %tile.4[0, 0] relaxed
        atomic.store %A.2[0 : +1, 1 : +1], previous.5 seq_cst
        parallel i.6, j.7 in [4, 4]:
          atomic.add %A.2[i.6 : +1, (j.7 * 2) : +1], %tile.4[i.6, (j.7 * 2)] relaxed
          atomic.add %A.2[i.6 : +1, ((j.7 * 2) + 1) : +1], %tile.4[i.6, ((j.7 * 2) + 1)] relaxed
    """)
