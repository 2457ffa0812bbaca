"""What the errors of names of other languages tell to write works: each form is in a program here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import ProgramAttributeError
from tileops.language.missing import INSTEAD as OF_THE_LANGUAGE
from tileops.language.missing import OF_A_VALUE, all_names, by_name

# What is said of each name of T, as ``T.dot``, and of each attribute of a value, as ``x.sum``.
INSTEAD = {
    **{f"T.{name}": text for name, text in by_name(OF_THE_LANGUAGE).items()},
    **{f"x.{name}": text for name, text in by_name(OF_A_VALUE).items()},
}


@tileops.jit
def tiles(A, B):
    """C = A @ B + 1, by tiles."""
    A: T.Tensor((32, 32), T.float32)
    B: T.Tensor((32, 32), T.float32)
    C = T.empty(A.shape, A.dtype)
    scratch = T.alloc_global((32, 32), T.float32)
    with T.Kernel(1, threads=128) as bx:
        assert A.shape[0] == 32, "sizes"
        a = T.alloc_shared((32, 32), T.float32)
        b = T.alloc_shared((32, 32), T.float32)
        c = T.alloc_fragment((32, 32), T.float32)
        ones = T.alloc_fragment((32, 32), T.float32)
        T.clear(c)
        T.fill(ones, 1.0)
        T.use_swizzle(10)
        for k in T.Pipelined(1, num_stages=3):
            T.copy(A[k * 32, 0], a)
            T.copy(B[k * 32, 0], b)
            T.gemm(a, b, c)
        T.copy(c, scratch[bx * 32, 0])
        T.sync_threads()
        for i, j in T.Parallel(32, 32):
            T.assume(i % 1 == 0)
            C[i, j] = scratch[i, j] + ones[i, j]
    return C


@tileops.jit
def rows(A):
    """Sums, extremes, means, variances, places of the greatest and softmax of rows."""
    A: T.Tensor((8, 16), T.float32)
    sums, most, least, means, variances, products = (T.empty((8,), T.float32) for _ in range(6))
    places, others = T.empty((8,), T.int32), T.empty((8,), T.int32)
    soft = T.empty((8, 16), T.float32)
    with T.Kernel(1, threads=64):
        tile = T.alloc_fragment((8, 16), T.float32)
        other = T.alloc_fragment((8, 16), T.float32)
        total = T.alloc_fragment((8,), T.float32)
        squares = T.alloc_fragment((8,), T.float32)
        top = T.alloc_fragment((8,), T.float32)
        low = T.alloc_fragment((8,), T.float32)
        where = T.alloc_fragment((8,), T.int32)
        other_place = T.alloc_fragment((8,), T.int32)
        T.copy(A, tile)
        T.reduce_sum(tile, total, dim=1)
        T.reduce_max(tile, top, dim=1)
        T.reduce_min(tile, low, dim=1)
        for i, j in T.Parallel(8, 16):
            other[i, j] = tile[i, j] * tile[i, j]
        T.reduce_sum(other, squares, dim=1)
        T.argmax(tile, where, dim=1)
        T.argmin(tile, other_place, dim=1)
        for i in T.Parallel(8):
            sums[i], most[i], least[i] = total[i], top[i], low[i]
            means[i] = total[i] / 16
            variances[i] = squares[i] / 16 - (total[i] / 16) * (total[i] / 16)
            places[i], others[i] = where[i], other_place[i]
        for i in T.serial(8):
            product = T.alloc_var(T.float32, 1.0)
            for k in T.serial(16):
                product = product * A[i, k]
            products[i] = product
        for i, j in T.Parallel(8, 16):
            other[i, j] = T.exp(tile[i, j] - top[i])
        T.reduce_sum(other, total, dim=1)
        for i, j in T.Parallel(8, 16):
            soft[i, j] = other[i, j] / total[i]
    return sums, most, least, means, variances, products, places, others, soft


@tileops.jit
def shapes(A, row, index):
    """Transposed, broadcast, reshaped, joined, gathered, flipped and masked."""
    A: T.Tensor((4, 8), T.float32)
    row: T.Tensor((8,), T.float32)
    index: T.Tensor((4,), T.int32)
    turned = T.empty((8, 4), T.float32)
    scaled, taken, mirrored, lower = (T.empty((4, 8), T.float32) for _ in range(4))
    flat = T.empty((32,), T.float32)
    joined = T.empty((8, 8), T.float32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((4, 8), T.float32)
        other = T.alloc_shared((8, 4), T.float32)
        both = T.alloc_shared((8, 8), T.float32)
        T.copy(A, tile)
        T.transpose(tile, other)
        T.copy(other, turned)
        T.copy(T.reshape(tile, (32,)), flat)
        T.copy(T.view(tile, (32,)), flat)
        T.copy(tile, both[0:4, :])
        T.copy(tile, both[4:8, :])
        T.copy(both, joined)
        for i, j in T.Parallel(4, 8):
            scaled[i, j] = tile[i, j] * row[j]
            taken[i, j] = A[index[i], j]
            mirrored[i, j] = A[4 - 1 - i, j]
            lower[i, j] = T.if_then_else(i >= j, tile[i, j], 0.0)
    return turned, scaled, taken, mirrored, lower, flat, joined


@tileops.jit
def elements(A, n: int = 10):
    """Functions and operators of elements."""
    A: T.Tensor((8,), T.float32)
    out = T.empty((18, 8), T.float32)
    bits = T.empty((8,), T.int32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            x = A[i]
            out[0, i] = T.cast(T.cast(x, T.int32), T.float32)
            out[1, i] = x.astype(T.int32)
            bits[i] = T.reinterpret(x, T.int32)
            out[2, i] = T.max(x, 0.5)
            out[3, i] = T.min(x, 0.5)
            out[4, i] = T.abs(x)
            out[5, i] = T.clamp(x, -1.0, 1.0)
            out[6, i] = T.pow(T.abs(x), 2.0) + x**2
            out[7, i] = T.max(x, 0)
            out[8, i] = x * T.sigmoid(x)
            out[9, i] = 0.5 * x * (1 + T.erf(x * 0.7071067811865476))
            out[10, i] = T.log1p(T.exp(x))
            out[11, i] = T.exp(x) - 1
            out[12, i] = T.nearbyint(x)
            out[13, i] = 1 / x
            out[14, i] = 1.0 if (x > 0 and not x > 1) or x < -1 else 0.0
            out[15, i] = T.if_then_else(x > 0, 1, -1)
            out[16, i] = T.min(T.infinity(T.float32), T.max_value(T.float32))
            out[17, i] = T.align_up(i + n, 16) + (i + n) // 3 * 2 - (i % 3)
    return out, bits


@tileops.jit
def atomics_and_loops(A):
    """Atomics, and loops in order."""
    A: T.Tensor((8,), T.int32)
    out = T.empty((6,), T.int32)
    with T.Kernel(1, threads=32):
        for k in range(6):
            out[k] = 0
        bx = T.get_block_binding(0)
        T.device_assert(A[0] < 100, "small")
        steps = T.alloc_var(T.int32, 0)
        while steps < 3:
            steps = steps + 1
        for k in T.serial(8):
            T.atomic_add(out[0], A[k])
            T.atomic_max(out[1], A[k])
            T.atomic_min(out[2], A[k])
            T.atomic_or(out[3], A[k])
        T.atomic_store(out[4], T.atomic_load(out[0]))
        out[5] = steps + bx
    return out


@tileops.jit
def threads(A):
    """The index of a thread."""
    A: T.Tensor((32,), T.int32)
    out = T.empty((32,), T.int32)
    with T.Kernel(1, threads=32):
        at = T.get_thread_binding()
        out[at] = A[at] + at
    return out


# What each program shows to work: names of other languages, one for each text at least.
COVERED = {
    "tiles": "dot load store zeros full empty_like shared alloc workspace program_id num_programs "
    "blockDim sync tile jit pipeline static_assert multiple_of swizzle2d arange",
    "threads": "threadIdx",
    "rows": "sum amax amin mean std nanargmax nanargmin softmax prod var",
    "shapes": "trans broadcast ravel cat gather flip tril",
    "elements": "astype bitcast fmax fmin absolute clip power relu silu gelu softplus expm1 "
    "rint reciprocal add land sign expf inf next_power_of_2 where constexpr",
    "atomics_and_loops": "atomicAdd atomicMax atomicMin atomic_cas range while_loop",
    "test_printing": "printf",
    # What has no form in a program: torch does it.
    "torch": "rand sort",
    "test_dtypes": "f16 f32 f64 bf16 fp8_e4m3 fp8_e5m2 i8 i16 i32 i64 u8 u16 u32 u64 bool_",
}


def test_every_text_is_shown_to_work() -> None:
    covered = {INSTEAD[f"T.{n}"] for names in COVERED.values() for n in names.split()}
    assert {text for name, text in INSTEAD.items() if name.startswith("T.")} == covered


def test_a_product_of_tiles() -> None:
    a, b = (torch.randint(-4, 5, (32, 32)).float() for _ in range(2))
    assert torch.equal(tiles(a, b), a @ b + 1)


def test_reductions_of_rows() -> None:
    a = torch.randint(1, 4, (8, 16)).float()
    sums, most, least, means, variances, products, places, others, soft = rows(a)
    assert torch.equal(sums, a.sum(1))
    assert torch.equal(most, a.amax(1))
    assert torch.equal(least, a.amin(1))
    assert torch.equal(means, a.mean(1))  # sums of small whole numbers over 16 are exact
    assert torch.equal(variances, a.var(1, correction=0))
    assert torch.equal(products, a.prod(1))
    assert torch.equal(places.long(), a.argmax(1))
    assert torch.equal(others.long(), a.argmin(1))
    torch.testing.assert_close(soft, a.softmax(1))


def test_other_shapes() -> None:
    a, row = torch.randn(4, 8), torch.randn(8)
    index = torch.tensor([2, 0, 3, 3], dtype=torch.int32)
    turned, scaled, taken, mirrored, lower, flat, joined = shapes(a, row, index)
    assert torch.equal(turned, a.T)
    assert torch.equal(scaled, a * row)
    assert torch.equal(taken, a[index.long()])
    assert torch.equal(mirrored, a.flip(0))
    assert torch.equal(lower, a.tril())
    assert torch.equal(flat, a.flatten())
    assert torch.equal(joined, torch.cat([a, a]))


def test_functions_of_elements() -> None:
    x = torch.tensor([0.25, -0.5, 1.5, -1.75, 2.5, 0.75, -3.0, 0.5])
    out, bits = elements(x)
    place = torch.arange(8)
    expected = [
        x.trunc(), x.trunc(), x.clamp(min=0.5), x.clamp(max=0.5), x.abs(), x.clamp(-1, 1), 2 * x * x,
        x.relu(), torch.nn.functional.silu(x), torch.nn.functional.gelu(x),
        torch.nn.functional.softplus(x), x.expm1(), x.round(), x.reciprocal(),
        (((x > 0) & ~(x > 1)) | (x < -1)).float(), x.sign(),
        torch.full((8,), torch.finfo(torch.float32).max),
        ((place + 10 + 15) // 16 * 16 + (place + 10) // 3 * 2 - place % 3).float(),
    ]  # fmt: skip
    torch.testing.assert_close(out, torch.stack(expected))
    assert torch.equal(bits, x.view(torch.int32))


def test_atomics_and_loops() -> None:
    a = torch.tensor([3, -2, 5, 1, 0, 4, -7, 2], dtype=torch.int32)
    joined = 0
    for value in a.tolist():
        joined |= value
    assert atomics_and_loops(a).tolist() == [6, 5, -7, joined, 6, 3]


def test_threads() -> None:
    a = torch.randint(-9, 9, (32,), dtype=torch.int32)
    assert torch.equal(threads(a), a + torch.arange(32, dtype=torch.int32))


def test_printing(capfd: pytest.CaptureFixture[str]) -> None:
    @tileops.jit
    def printing(A):
        A: T.Tensor((2,), T.int32)
        with T.Kernel(1):
            T.print(A[0], "first")

    printing(torch.tensor([7, 8], dtype=torch.int32))
    assert re.search(r"first.*7", capfd.readouterr().out)


def test_dtypes() -> None:
    for name in COVERED["test_dtypes"].split():
        (dtype,) = re.findall(r"T\.(\w+)$", INSTEAD[f"T.{name}"])
        assert str(getattr(T, dtype)) == dtype


@pytest.mark.parametrize("name", INSTEAD)
def test_the_names_of_the_texts_are_of_the_language(name: str) -> None:
    for used in re.findall(r"\bT\.(\w+)", INSTEAD[name]):
        assert used in T.__all__
    owner, _, attribute = name.partition(".")
    if owner == "T":
        assert attribute not in T.__all__
        assert attribute not in all_names()
        with pytest.raises(ProgramAttributeError, match=re.escape(INSTEAD[name])):
            getattr(T, attribute)


def value_of(kind: str) -> Callable[[object], object]:
    return {"buffer": lambda A: A, "slice": lambda A: A[0:2], "element": lambda A: A[0]}[kind]


@pytest.mark.parametrize("kind", ["buffer", "slice", "element"])
@pytest.mark.parametrize("name", ["sum", "to", "item", "load", "T", "nelement", "exp", "fill_"])
def test_attributes_of_torchs_tensors(kind: str, name: str) -> None:
    of = value_of(kind)

    @tileops.jit
    def asked(A, attribute: str):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            T.fill(A, getattr(of(A), attribute))

    with pytest.raises(ProgramAttributeError, match=re.escape(INSTEAD[f"x.{name}"])):
        asked(torch.ones(4), name)


def test_a_macro_may_call_itself_under_a_condition_of_python() -> None:
    @T.macro
    def powers(dst, n):
        if n > 0:
            powers(dst, n - 1)
        dst[n] = 2**n

    @tileops.jit
    def recursive():
        B = T.empty((5,), T.int32)
        with T.Kernel(1):
            powers(B, 4)
        return B

    assert recursive().tolist() == [1, 2, 4, 8, 16]


def test_python_goes_through_a_range_of_known_numbers() -> None:
    @tileops.jit
    def counted():
        B = T.empty((4,), T.int32)
        order = list(reversed(range(4)))
        pairs = dict(enumerate(range(1, 8, 2)))
        with T.Kernel(1):
            for i in range(4):
                B[i] = 0
            B[order[0]] = sum(range(5)) + math.prod(pairs.values())
            B[0] = len(range(2, 9)) if 3 in range(4) else -1
        return B

    assert counted().tolist() == [7, 0, 0, 10 + 105]
