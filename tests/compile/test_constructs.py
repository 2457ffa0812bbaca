"""Constructs of the language on the Triton path: text that compiles, results under the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.language as T
from tests.kit.interpreted import TARGET, floats, run
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.errors import UnsupportedConstructError
from tileops.frontend.trace import trace


def copied(a: torch.Tensor, out_shape: tuple[int, ...], body: Any) -> torch.Tensor:
    """One block: ``A`` in shared ``s``, then ``body(s, o)`` fills fragment ``o``, which is returned."""
    shape, step = tuple(a.shape), T.macro(body)

    def program(A):
        A: T.Tensor(shape, T.float32)
        C = T.empty(out_shape, T.float32)
        with T.Kernel(1, threads=128) as _:
            s = T.alloc_shared(shape, T.float32)
            o = T.alloc_fragment(out_shape, T.float32)
            T.copy(A, s)
            step(s, o)
            T.copy(o, C)
        return C

    (out,) = run(program, a)
    return out


@pytest.mark.parametrize("name", ["tl", "_", "_floordiv", "range"])
def test_programs_with_names_of_the_generated_text(name: str) -> None:
    def program(A):
        N = T.dynamic("N")
        A: T.Tensor((N,), T.int32)
        with T.Kernel(1, threads=32):
            for i in T.serial(N):
                A[i] = A[i] // -3

    traced = trace(program, name=name, static={}, consts={})
    code = generate(traced, TARGET, Specialization(fast=True))
    assert [launch.entry for launch in code.launches] == [f"kernel_{name}"]
    compiled = compile_kernel(code, TARGET, {})
    assert f".entry kernel_{name}(".encode() in compiled.files["launch0.ptx"]


def test_permutation() -> None:
    a = floats(16, 32)

    def body(s, o):
        for i, j in T.Parallel(32, 16):
            o[i, j] = s[j, i]

    assert torch.equal(copied(a, (32, 16), body), a.T)


def test_permuted_write_of_a_broadcast_row() -> None:
    a = floats(16)

    def body(s, o):
        for i, j in T.Parallel(16, 8):
            o[j, i] = s[i] * 2

    assert torch.equal(copied(a, (8, 16), body), (a * 2).expand(8, 16))


def test_three_dimensions_permuted() -> None:
    a = floats(4, 8, 16)

    def body(s, o):
        for i, j, k in T.Parallel(16, 4, 8):
            o[i, j, k] = s[j, k, i]

    assert torch.equal(copied(a, (16, 4, 8), body), a.permute(2, 0, 1))


def test_shifted_read() -> None:
    a = floats(32)

    def body(s, o):
        for i in T.Parallel(16):
            o[i] = s[i + 7]

    assert torch.equal(copied(a, (16,), body), a[7:23])


def test_shifted_write_keeps_the_rest() -> None:
    a = floats(8, 16)

    def body(s, o):
        T.fill(o, 5)
        for i, j in T.Parallel(8, 16):
            o[i, j + 3] = s[i, j]

    expected = torch.full((8, 32), 5.0)
    expected[:, 3:19] = a
    assert torch.equal(copied(a, (8, 32), body), expected)


def test_reversed_and_strided_write() -> None:
    a = floats(16)

    def body(s, o):
        T.clear(o)
        for i in T.Parallel(16):
            o[31 - 2 * i] = s[i]

    expected = torch.zeros(32)
    expected[31 - 2 * torch.arange(16)] = a
    assert torch.equal(copied(a, (32,), body), expected)


def test_division_and_remainder() -> None:
    a = floats(8, 4)

    def body(s, o):
        for i in T.Parallel(32):
            o[i] = s[i // 4, i % 4]

    assert torch.equal(copied(a, (32,), body), a.reshape(32))


def test_write_by_division_and_remainder() -> None:
    a = floats(32)

    def body(s, o):
        for i in T.Parallel(32):
            o[i // 8, i % 8] = s[i]

    assert torch.equal(copied(a, (4, 8), body), a.reshape(4, 8))


def test_row_select() -> None:
    a = floats(8, 16)

    def body(s, o):
        for r in T.serial(8):
            for j in T.Parallel(16):
                o[r, j] = s[7 - r, j]

    assert torch.equal(copied(a, (8, 16), body), a.flip(0))


def test_gather_from_a_tile_by_value() -> None:
    a = torch.randperm(32).float()

    def body(s, o):
        for i in T.Parallel(32):
            o[i] = s[T.cast(s[i], "int32")]

    assert torch.equal(copied(a, (32,), body), a[a.long()])


def test_odd_extents() -> None:
    a = floats(5, 7)

    def body(s, o):
        for i, j in T.Parallel(5, 7):
            o[i, j] = s[i, j] + s[i, 6 - j]

    assert torch.equal(copied(a, (5, 7), body), a + a.flip(1))


def test_if_inside_parallel() -> None:
    a = floats(16, 16)

    def body(s, o):
        for i, j in T.Parallel(16, 16):
            if i > j:
                o[i, j] = s[i, j]
            elif i == j:
                o[i, j] = 1
            else:
                o[i, j] = -s[i, j]

    expected = a.tril(-1) + torch.eye(16) - a.triu(1)
    assert torch.equal(copied(a, (16, 16), body), expected)


def test_snapshots_hold() -> None:
    a = floats(16)

    def body(s, o):
        for i in T.Parallel(16):
            before = s[i]
            s[i] = 0
            o[i] = before + s[i]

    assert torch.equal(copied(a, (16,), body), a)


def test_serial_loop_inside_parallel() -> None:
    a = floats(16, 8)

    def body(s, o):
        for i in T.Parallel(16):
            o[i] = 0
            for k in T.serial(8):
                o[i] += s[i, k] * k

    expected = (a * torch.arange(8)).sum(1)
    assert torch.allclose(copied(a, (16,), body), expected, atol=1e-5)


def test_loop_bounds_that_differ_between_points() -> None:
    a = floats(16)

    def body(s, o):
        for i in T.Parallel(16):
            o[i] = 0
            for k in T.serial(i + 1):
                o[i] += s[k]

    assert torch.allclose(copied(a, (16,), body), a.cumsum(0), atol=1e-5)


def test_scalar_reads_and_writes_of_tiles() -> None:
    a = floats(16)

    def body(s, o):
        for i in T.serial(16):
            x = s[15 - i]
            o[i] = x * 2

    assert torch.equal(copied(a, (16,), body), a.flip(0) * 2)


@pytest.mark.parametrize("kind", ["sum", "max", "min", "absmax", "abssum"])
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions(kind: str, dim: int) -> None:
    a = floats(12, 24)
    size = 24 if dim == 0 else 12

    def body(s, o):
        getattr(T, f"reduce_{kind}")(s, o, dim=dim)

    values = a.abs() if kind.startswith("abs") else a
    expected = {"sum": values.sum(dim), "max": values.amax(dim), "min": values.amin(dim)}[
        kind.removeprefix("abs")
    ]
    assert torch.allclose(copied(a, (size,), body), expected, atol=1e-5)


def test_reduction_onto_the_old_value() -> None:
    a = floats(16, 16)

    def body(s, o):
        T.fill(o, 3)
        T.reduce_max(s, o, dim=1, clear=False)

    assert torch.equal(copied(a, (16,), body), a.amax(1).clamp(min=3))


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    a = floats(6, 24)

    def body(s, o):
        T.cumsum(s, o, dim=1, reverse=reverse)

    expected = a.flip(1).cumsum(1).flip(1) if reverse else a.cumsum(1)
    assert torch.allclose(copied(a, (6, 24), body), expected, atol=1e-5)


def test_slices_of_tiles() -> None:
    a = floats(16, 32)

    def body(s, o):
        T.clear(o)
        T.copy(s[4:12, 8:24], o[0:8, 0:16])

    expected = torch.zeros(8, 32)
    expected[:, :16] = a[4:12, 8:24]
    assert torch.equal(copied(a, (8, 32), body), expected)


def test_reshape_names_the_same_storage() -> None:
    a = floats(8, 16)

    def body(s, o):
        flat = T.reshape(s, (128,))
        for i in T.Parallel(128):
            flat[i] = flat[i] + 1
        T.copy(s, o)

    assert torch.equal(copied(a, (8, 16), body), a + 1)


def test_views_of_global_tensors_name_their_memory() -> None:
    a = floats(6, 20)

    def program(A):
        A: T.Tensor((6, 20), T.float32)
        C = T.empty((120,), T.int32)
        with T.Kernel(4, threads=128) as bx:
            flat = T.reshape(A, (120,))
            bits = T.view(flat, dtype="int32")
            out = T.reshape(C, (4, 30))
            for i in T.Parallel(30):
                out[bx, i] = bits[bx * 30 + i]
        return C

    (out,) = run(program, a)
    assert torch.equal(out, a.flatten().view(torch.int32))


def test_a_view_of_a_strided_tensor_is_refused() -> None:
    def program(A):
        A: T.StridedTensor((4, 8), (16, 1), T.float32)
        C = T.empty((32,), T.float32)
        with T.Kernel(1, threads=128) as _:
            flat = T.reshape(A, (32,))
            for i in T.Parallel(32):
                C[i] = flat[i]
        return C

    with pytest.raises(UnsupportedConstructError, match="strides of its own"):
        trace(program, name="program", static={}, consts={})


def test_while_with_a_carried_tile() -> None:
    a = floats(16)

    def body(s, o):
        n = T.alloc_var(T.int32, 0)
        T.clear(o)
        while n < 5:
            for i in T.Parallel(16):
                o[i] += s[i]
            n += 1

    assert torch.allclose(copied(a, (16,), body), a * 5, atol=1e-5)


def test_break_and_continue() -> None:
    a = floats(16)

    def body(s, o):
        T.clear(o)
        for k in T.serial(16):
            if k == 2:
                continue
            if k == 9:
                break
            for i in T.Parallel(16):
                o[i] += s[k]

    expected = a[:9].sum() - a[2]
    assert torch.allclose(copied(a, (16,), body), expected.expand(16), atol=1e-5)


def test_multi_stage_buffer_by_leading_index() -> None:
    a = floats(4, 16, 16)

    def body(s, o):
        T.clear(o)
        for k in T.serial(4):
            T.gemm(s[k, :, :], s[3 - k, :, :], o)

    expected = sum(a[k] @ a[3 - k] for k in range(4))
    # One block of TF32 on the device; the interpreter multiplies in float32.
    assert torch.allclose(copied(a, (16, 16), body), expected, atol=1e-4)


def test_writes_that_race_are_refused() -> None:
    def body(s, o):
        for i, j in T.Parallel(16, 16):
            o[i] = s[i, j]

    with pytest.raises(UnsupportedConstructError, match="several points"):
        copied(floats(16, 16), (16,), body)


def test_atomics_and_scatter_on_global() -> None:
    def histogram(X, C):
        X: T.Tensor((1000,), T.int32)
        C: T.Tensor((16,), T.int32)
        with T.Kernel(T.ceildiv(1000, 256), threads=128) as bx:
            for i in T.Parallel(256):
                if bx * 256 + i < 1000:
                    T.atomic_add(C[X[bx * 256 + i]], 1)

    x = torch.randint(0, 16, (1000,), dtype=torch.int32)
    counts = torch.zeros(16, dtype=torch.int32)
    run(histogram, x, counts)
    assert torch.equal(counts, torch.bincount(x, minlength=16).int())


def test_gather_on_global() -> None:
    def gather(X, I):
        X: T.Tensor((50, 24), T.float32)
        I: T.Tensor((16,), T.int32)
        C = T.empty((16, 24), T.float32)
        with T.Kernel(1, threads=128) as _:
            for i, j in T.Parallel(16, 24):
                C[i, j] = X[I[i], j]
        return C

    x, index = floats(50, 24), torch.randint(0, 50, (16,), dtype=torch.int32)
    (out,) = run(gather, x, index)
    assert torch.equal(out, x[index.long()])


def test_out_of_bounds_reads_give_zero_and_writes_are_dropped() -> None:
    def shift(X):
        X: T.Tensor((20,), T.float32)
        C = T.empty((20,), T.float32)
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(32):
                C[i] = X[i - 3]
        return C

    x = floats(20)
    (out,) = run(shift, x)
    assert torch.equal(out, torch.cat([torch.zeros(3), x[:17]]))


def test_runtime_extent_of_parallel() -> None:
    def scale(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        C = T.empty((N,), T.float32)
        with T.Kernel(1, threads=128) as _:
            for i in T.Parallel(N):
                C[i] = X[i] * 2
        return C

    x = floats(1500)
    (out,) = run(scale, x)
    assert torch.equal(out, x * 2)


def test_pass_configs_that_change_results_act() -> None:
    def program(A, B):
        A: T.Tensor((20, 20), T.float32)
        B: T.Tensor((20, 20), T.float32)
        C = T.empty((20, 20), T.float32)
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((32, 32), T.float32)
            c = T.alloc_fragment((32, 32), T.float32)
            T.clear(c)
            T.copy(A[0:32, 0:32], a)
            T.gemm(a, a, c)
            for i, j in T.Parallel(32, 32):
                c[i, j] = T.exp(c[i, j]) / B[i, j]
            T.copy(c, C[0:32, 0:32])
        return C

    def text(*options: tuple[str, str]) -> str:
        traced = trace(program, name="program", static={}, consts={}, options=options)
        return generate(traced, TARGET, Specialization()).source

    plain = text()
    assert "tl.div_rn" in plain
    assert "libdevice.exp" in plain
    assert "mask=" in plain
    assert 'input_precision="tf32"' in plain
    fast = text(("tl.enable_fast_math", "true"))
    assert "tl.div_rn" not in fast
    assert "tl.exp(" in fast
    assert "mask=" not in text(("tl.disable_safe_memory_legalize", "true"))
    assert 'input_precision="ieee"' in text(("tl.gemm_f32_precision", "ieee"))
