"""Each construct of the language on the CPU path against torch or plain Python, with odd sizes."""

import pytest
import torch
from harness import KernelFailed, build_eager

import tileops.language as T

# -- copies and bounds --------------------------------------------------------------------------------


def window(X, rows: int, columns: int, r0: int, c0: int, fill: float, dtype: str = "float32"):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), dtype)
    Y = T.empty((rows, columns), dtype)
    start = T.empty((1,), "int32")
    with T.Kernel(1, threads=128) as bx:
        tile = T.alloc_shared((rows, columns), dtype)
        if fill != 0:
            T.annotate_safe_value({X: fill})
        r = T.alloc_var("int32", r0)
        c = T.alloc_var("int32", c0)
        start[0] = r
        T.copy(X[r, c], tile)
        T.copy(tile, Y)
    return Y, start


@pytest.mark.parametrize("fill", [0.0, -7.5])
@pytest.mark.parametrize(
    ("r0", "c0"), [(0, 0), (-3, -2), (5, 9), (-100, 0), (2, 100), (8, -30), (0, 3)]
)
def test_reads_out_of_bounds(r0, c0, fill):
    x = torch.randn(9, 11)
    got, _ = build_eager(
        window, consts={"M": 9, "N": 11}, rows=6, columns=8, r0=r0, c0=c0, fill=fill
    )(x)
    want = torch.full((6, 8), fill)
    for i in range(6):
        for j in range(8):
            if 0 <= r0 + i < 9 and 0 <= c0 + j < 11:
                want[i, j] = x[r0 + i, c0 + j]
    assert torch.equal(got, want)


def scatter_window(X, Y, r0: int, c0: int, through_nest: bool):
    M, N = T.const("M, N")
    X: T.Tensor((6, 8), "float32")
    Y: T.Tensor((M, N), "float32")
    with T.Kernel(1, threads=128) as bx:
        tile = T.alloc_fragment((6, 8), "float32")
        r = T.alloc_var("int32", r0)
        c = T.alloc_var("int32", c0)
        T.copy(X, tile)
        if through_nest:
            for i, j in T.Parallel(6, 8):
                Y[r + i, c + j] = tile[i, j]
        else:
            T.copy(tile, Y[r, c])


@pytest.mark.parametrize("through_nest", [False, True])
@pytest.mark.parametrize(("r0", "c0"), [(0, 0), (-3, -2), (5, 9), (-100, 0), (2, 100), (8, -30)])
def test_writes_out_of_bounds_are_dropped(r0, c0, through_nest):
    x, guard = torch.randn(6, 8), torch.zeros(30, 11)
    y = guard[10:19]
    build_eager(scatter_window, consts={"M": 9, "N": 11}, r0=r0, c0=c0, through_nest=through_nest)(
        x, y
    )
    want = torch.zeros(9, 11)
    for i in range(6):
        for j in range(8):
            if 0 <= r0 + i < 9 and 0 <= c0 + j < 11:
                want[r0 + i, c0 + j] = x[i, j]
    assert torch.equal(y, want)
    assert not guard[:10].any()
    assert not guard[19:].any()


def global_to_global(X, r0: int):
    X: T.Tensor((7, 5), "float16")
    Y = T.empty((9, 5), "float32")
    with T.Kernel(1, threads=128) as bx:
        T.fill(Y, 3)
        r = T.alloc_var("int32", r0)
        T.copy(X[r : r + 4, :], Y[r + 3 : r + 7, :])
    return Y


@pytest.mark.parametrize("r0", [0, 4, -2, -5, 7])
def test_copy_between_tensors(r0):
    x = torch.randn(7, 5).half()
    want = torch.full((9, 5), 3.0)
    for i in range(4):
        if 0 <= r0 + 3 + i < 9:
            want[r0 + 3 + i] = x[r0 + i].float() if 0 <= r0 + i < 7 else 0.0
    assert torch.equal(build_eager(global_to_global, r0=r0)(x), want)


def strided(X, block: int = 8):
    M, N, S = T.const("M, N, S")
    X: T.StridedTensor((M, N), (S, 1), "float32")
    Y = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
        t = T.alloc_fragment((block, N), "float32")
        T.copy(X[bx * block, 0], t)
        for i, j in T.Parallel(block, N):
            Y[bx * block + i, j] = t[i, j] + X[bx * block + i, j]
    return Y


def test_strided_tensor():
    x = torch.randn(13, 40)[:, 3:16]
    assert torch.equal(build_eager(strided, consts={"M": 13, "N": 13, "S": 40})(x), x + x)


def transposed_nest(X, block: int = 16):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y = T.empty((N, M), "float32")
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        for i, j in T.Parallel(block, block):
            Y[bx * block + j, by * block + i] = X[by * block + i, bx * block + j]
    return Y


def test_transposed_indices():
    x = torch.randn(37, 21)
    assert torch.equal(build_eager(transposed_nest, consts={"M": 37, "N": 21})(x, threads=2), x.T)


def transpose_tile(X):
    X: T.Tensor((12, 7), "float32")
    Y = T.empty((7, 12), "float32")
    with T.Kernel(1, threads=128) as bx:
        a = T.alloc_shared((12, 7), "float32")
        b = T.alloc_shared((7, 12), "float32")
        T.copy(X, a)
        T.transpose(a, b)
        T.copy(b, Y)
    return Y


def test_transpose():
    x = torch.randn(12, 7)
    assert torch.equal(build_eager(transpose_tile)(x), x.T)


# -- views ---------------------------------------------------------------------------------------------


def views(X):
    X: T.Tensor((4, 6), "float32")
    Y = T.empty((24,), "float32")
    Z = T.empty((4, 6), "int32")
    with T.Kernel(1, threads=128) as bx:
        t = T.alloc_shared((4, 6), "float32")
        flat = T.reshape(t, (24,))
        bits = T.view(t, (4, 6), "int32")
        T.copy(X, t)
        for i in T.Parallel(12):
            flat[i] = flat[i] * 2
        T.copy(flat, Y)
        T.copy(bits, Z)
    return Y, Z


def test_views_alias():
    x = torch.randn(4, 6)
    y, z = build_eager(views)(x)
    want = x.flatten().clone()
    want[:12] *= 2
    assert torch.equal(y, want)
    assert torch.equal(z, want.view(torch.int32).reshape(4, 6))


def reinterpreted(X):
    X: T.Tensor((65536,), "float16")
    Y = T.empty((65536,), "uint16")
    Z = T.empty((65536,), "float16")
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(65536):
            Y[i] = T.reinterpret(X[i], "uint16")
            Z[i] = T.reinterpret(
                T.reinterpret(X[i], "uint16") ^ T.cast(0x8000, "uint16"), "float16"
            )
    return Y, Z


def test_reinterpret_keeps_every_bit():
    bits = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    y, z = build_eager(reinterpreted)(bits.view(torch.float16))
    assert torch.equal(y.int(), bits.int())
    number = ~bits.view(torch.float16).isnan()
    assert torch.equal(z.view(torch.uint16).int()[number], (bits.int() ^ 0x8000)[number])


# -- reductions and scans ------------------------------------------------------------------------------

TORCH_REDUCE = {
    "sum": lambda x, d: x.sum(d),
    "max": lambda x, d: x.amax(d),
    "min": lambda x, d: x.amin(d),
    "absmax": lambda x, d: x.abs().amax(d),
    "abssum": lambda x, d: x.abs().sum(d),
}


def reduced(
    X, kind: str, shape: tuple, dim: int, source: str, target: str, clear: bool, start: int
):
    out = tuple(e for d, e in enumerate(shape) if d != dim % len(shape)) or (1,)
    X: T.Tensor(shape, source)
    Y = T.empty(out, target)
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment(shape, source)
        y = T.alloc_fragment(out, target)
        T.copy(X, x)
        T.fill(y, start)
        T.reduce(x, y, kind, dim, clear)
        T.copy(y, Y)
    return Y


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((5, 33), 1),
        ((5, 33), 0),
        ((70,), 0),
        ((3, 9, 5), 1),
        ((3, 9, 5), -1),
        ((1, 200), 1),
        ((4, 1), 1),
    ],
)
@pytest.mark.parametrize("kind", list(TORCH_REDUCE))
def test_reduce(kind, shape, dim, clear):
    x = torch.randint(-50, 50, shape)
    want = TORCH_REDUCE[kind](x, dim)
    if not clear:
        old = torch.tensor(30)
        want = (
            want + old
            if "sum" in kind
            else torch.maximum(want, old)
            if "max" in kind
            else torch.minimum(want, old)
        )
    pairs = [("float32", "float32"), ("int32", "int32"), ("float16", "float32"), ("int8", "int64")]
    turn = list(TORCH_REDUCE).index(kind) + dim + clear
    for source, target in (pairs[turn % 4], pairs[(turn + 1) % 4]):
        kernel = build_eager(
            reduced,
            kind=kind,
            shape=shape,
            dim=dim,
            source=source,
            target=target,
            clear=clear,
            start=30,
        )
        got = kernel(x.to(getattr(torch, source)))
        assert torch.equal(got.long().flatten(), want.flatten()), (source, target)


@pytest.mark.parametrize("kind", ["bitand", "bitor", "bitxor"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "bool"])
def test_bit_reductions(kind, dtype):
    x = torch.randint(0, 2 if dtype == "bool" else 100, (6, 21)).to(getattr(torch, dtype))
    kernel = build_eager(
        reduced, kind=kind, shape=(6, 21), dim=1, source=dtype, target=dtype, clear=True, start=0
    )
    want = []
    for row in x.tolist():
        value = row[0]
        for item in row[1:]:
            value = (
                value & item
                if kind == "bitand"
                else value | item
                if kind == "bitor"
                else value ^ item
            )
        want.append(value)
    assert kernel(x).tolist() == want


def test_reduction_accumulates_in_the_destination():
    x = torch.ones(64, 4096, dtype=torch.float16)
    kernel = build_eager(
        reduced,
        kind="sum",
        shape=(64, 4096),
        dim=1,
        source="float16",
        target="bfloat16",
        clear=True,
        start=0,
    )
    # 32 partial sums of 128 ones are exact in bfloat16, and so are their pairwise sums.
    assert (kernel(x) == 4096).all()
    # With 7 fractional bits lost on the way, most sums miss the correctly rounded one.
    x = (1 + torch.rand(64, 4096)).half()
    assert (kernel(x) != x.double().sum(1).to(torch.bfloat16)).any()


def nan_max(X, keep: bool):
    X: T.Tensor((2, 8), "float16")
    Y = T.empty((2,), "float16")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment((2, 8), "float16")
        y = T.alloc_fragment((2,), "float16")
        T.copy(X, x)
        T.reduce_max(x, y, dim=1, nan_propagate=keep)
        T.copy(y, Y)
    return Y


def test_reduce_max_and_nan():
    x = torch.randn(2, 8).half()
    x[0, 3] = float("nan")
    got = build_eager(nan_max, keep=False)(x)
    assert torch.equal(got, torch.stack([x[0][~x[0].isnan()].max(), x[1].max()]))
    got = build_eager(nan_max, keep=True)(x)
    assert got[0].isnan()
    assert got[1] == x[1].max()


def scanned(X, kind: str, dim: int, reverse: bool, in_place: bool):
    X: T.Tensor((6, 11), "int32")
    Y = T.empty((6, 11), "int32")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_shared((6, 11), "int32")
        y = T.alloc_shared((6, 11), "int32")
        T.copy(X, x)
        scan = T.cumsum if kind == "sum" else T.cummax
        if in_place:
            scan(x, dim=dim, reverse=reverse)
            T.copy(x, Y)
        else:
            scan(x, y, dim, reverse)
            T.copy(y, Y)
    return Y


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_scan(kind, dim, reverse, in_place):
    x = torch.randint(-20, 20, (6, 11), dtype=torch.int32)
    y = x.flip(dim) if reverse else x
    y = y.cumsum(dim) if kind == "sum" else y.cummax(dim).values
    want = y.flip(dim) if reverse else y
    got = build_eager(scanned, kind=kind, dim=dim, reverse=reverse, in_place=in_place)(x)
    assert torch.equal(got.long(), want.long())


# -- control flow --------------------------------------------------------------------------------------


def loops(X, limit: int):
    X: T.Tensor((32,), "int32")
    Y = T.empty((5,), "int32")
    with T.Kernel(1, threads=128) as bx:
        total = T.alloc_var("int32", 0)
        steps = T.alloc_var("int32", 0)
        n = T.alloc_var("int32", limit)
        for i in T.serial(32):
            if X[i] < 0:
                continue
            if X[i] == 99:
                break
            total += X[i]
        Y[0] = total
        while n > 1:
            if n % 2 == 0:  # noqa: SIM108 - a tile-level branch is what is tested
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        Y[1] = steps
        back = T.alloc_var("int32", 0)
        for i in range(10, 0, -3):
            back = back * 100 + i
        Y[2] = back
        nested = T.alloc_var("int32", 0)
        for i, j in T.grid(3, 4):
            nested += i * j
        Y[3] = nested
        Y[4] = T.if_then_else(total > 3, 1, 2)
    return Y


def test_loops():
    x = torch.randint(-5, 9, (32,), dtype=torch.int32)
    x[20] = 99
    want = [0, 0, 0, 18, 0]
    for v in x.tolist():
        if v == 99:
            break
        want[0] += max(v, 0)
    n = 27
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        want[1] += 1
    want[2] = ((10 * 100 + 7) * 100 + 4) * 100 + 1
    want[4] = 1 if want[0] > 3 else 2
    assert build_eager(loops, limit=27)(x).tolist() == want


def snapshots(X):
    X: T.Tensor((8,), "float32")
    Y = T.empty((8,), "float32")
    Z = T.empty((2,), "float32")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_shared((8,), "float32")
        T.copy(X, x)
        before = x[0]
        x[0] = 5.0
        Z[0] = before
        Z[1] = x[0]
        for i in T.Parallel(4):
            low = x[i]
            high = x[7 - i]
            x[i] = high
            x[7 - i] = low
        T.copy(x, Y)
    return Y, Z


def test_binds_are_snapshots():
    x = torch.randn(8)
    y, z = build_eager(snapshots)(x)
    want = x.clone()
    want[0] = 5.0
    assert torch.equal(y, want.flip(0))
    assert z.tolist() == [x[0].item(), 5.0]


def carried(X):
    X: T.Tensor((4, 8), "float8_e4m3fn")
    Y = T.empty((8,), "float8_e4m3fn")
    with T.Kernel(1, threads=128) as bx:
        acc = T.alloc_fragment((8,), "float8_e4m3fn")
        T.clear(acc)
        for s in T.serial(4):
            for i in T.Parallel(8):
                acc[i] += X[s, i]
        T.copy(acc, Y)
    return Y


def test_narrow_tiles_round_at_each_update():
    x = torch.randn(4, 8).to(torch.float8_e4m3fn)
    want = torch.zeros(8).to(torch.float8_e4m3fn)
    for s in range(4):
        want = (want.float() + x[s].float()).to(torch.float8_e4m3fn)
    assert torch.equal(build_eager(carried)(x).float(), want.float())


def conditional_nest(X, N0: int):
    N = T.const("N")
    X: T.Tensor((N,), "float32")
    Y = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, 32), threads=128) as bx:
        for i in T.Parallel(32):
            at = bx * 32 + i
            if at % 3 == 0:
                Y[at] = X[at] * 2
            elif at < N0:
                Y[at] = -X[at]
            else:
                total = T.alloc_var("float32", 0.0)
                for k in T.serial(i % 4):
                    total += X[at] + k
                Y[at] = total
    return Y


def test_conditions_and_loops_in_nests():
    x = torch.randn(70)
    got = build_eager(conditional_nest, consts={"N": 70}, N0=40)(x)
    for at in range(70):
        if at % 3 == 0:
            want = x[at] * 2
        elif at < 40:
            want = -x[at]
        else:
            want = torch.tensor(0.0)
            for k in range(at % 32 % 4):
                want = want + (x[at] + k)
        assert got[at] == want


def lazy(X):
    N = T.const("N")
    X: T.Tensor((N,), "float32")
    Y = T.empty((64,), "float32")
    with T.Kernel(1, threads=128) as bx:
        t = T.alloc_shared((16,), "float32")
        T.fill(t, 2.0)
        for i in T.Parallel(64):
            # Neither the tile nor the division is touched where the condition is false.
            Y[i] = T.if_then_else(
                i < 16,
                t[i] + X[i],
                T.if_then_else(i > 20, T.cast(100 // (i - 20), "float32"), -1.0),
            )
    return Y


def test_select_is_lazy():
    x = torch.randn(10)
    got = build_eager(lazy, consts={"N": 10})(x)
    for i in range(64):
        if i < 16:
            want = 2.0 + (x[i].item() if i < 10 else 0.0)
            assert got[i].item() == pytest.approx(want, abs=1e-6)
        else:
            assert got[i].item() == (100 // (i - 20) if i > 20 else -1.0)


def gathered(X, Index, block: int = 16):
    M, N, K = T.const("M, N, K")
    X: T.Tensor((M, N), "float32")
    Index: T.Tensor((K,), "int32")
    Y = T.empty((K, N), "float32")
    with T.Kernel(T.ceildiv(K, block), threads=128) as bx:
        rows = T.alloc_shared((block,), "int32")
        T.copy(Index[bx * block], rows)
        for i, j in T.Parallel(block, N):
            Y[bx * block + i, j] = X[rows[i], j]
    return Y


def test_gather_with_bad_indices_reads_zero():
    x = torch.randn(20, 13)
    at = torch.randint(-3, 24, (45,), dtype=torch.int32)
    got = build_eager(gathered, consts={"M": 20, "N": 13, "K": 45})(x, at)
    want = torch.stack([x[i] if 0 <= i < 20 else torch.zeros(13) for i in at.tolist()])
    assert torch.equal(got, want)


def flattened(X):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), "int32")
    Y = T.empty((N, M), "int32")
    with T.Kernel(T.ceildiv(M * N, 64), threads=128) as bx:
        for t in T.Parallel(64):
            at = bx * 64 + t
            Y[at % N, at // N] = X[at // N, at % N] + at
    return Y


def test_division_in_indices_with_dynamic_sizes():
    kernel = build_eager(flattened)
    for m, n in [(1, 1), (7, 9), (64, 3), (5, 200)]:
        x = torch.randint(0, 100, (m, n), dtype=torch.int32)
        assert torch.equal(
            kernel(x, threads=2), (x + torch.arange(m * n, dtype=torch.int32).view(m, n)).T
        )


# -- atomics, im2col, checks -----------------------------------------------------------------------------


def histogram(X, Y, bins: int = 17, block: int = 64):
    N = T.const("N")
    X: T.Tensor((N,), "int32")
    Y: T.Tensor((bins,), "int32")
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            if bx * block + i < N:
                T.atomic_add(Y[X[bx * block + i]], 1)


def test_atomic_histogram_on_two_threads():
    x = torch.randint(-2, 20, (10_001,), dtype=torch.int32)
    y = torch.zeros(17, dtype=torch.int32)
    build_eager(histogram, consts={"N": 10_001})(x, y, threads=2)
    inside = x[(x >= 0) & (x < 17)]
    assert torch.equal(y, torch.bincount(inside, minlength=17).int())


def atomic_tile(X, Y, name: str, dtype: str):
    X: T.Tensor((8, 4, 6), dtype)
    Y: T.Tensor((5, 6), dtype)
    with T.Kernel(8, threads=128) as bx:
        t = T.alloc_fragment((4, 6), dtype)
        T.copy(X[bx, :, :], t)
        getattr(T, name)(Y[2, 0], t)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize("name", ["atomic_add", "atomic_max", "atomic_min"])
def test_atomic_tiles(name, dtype):
    x = torch.randint(-9, 9, (8, 4, 6)).to(getattr(torch, dtype))
    y = torch.zeros(5, 6, dtype=x.dtype)
    build_eager(atomic_tile, name=name, dtype=dtype)(x, y, threads=2)
    whole = {
        "atomic_add": x.sum(0),
        "atomic_max": x.amax(0).clamp(min=0),
        "atomic_min": x.amin(0).clamp(max=0),
    }
    want = torch.zeros_like(y)
    want[2:] = whole[name][:3]  # the fourth row lies outside
    assert torch.equal(y, want)


def tickets(Y):
    Y: T.Tensor((1,), "int32")
    Z = T.empty((64,), "int32")
    with T.Kernel(64, threads=128) as bx:
        mine = T.atomic_add(Y[0], 1, return_prev=True)
        Z[mine] = bx
    return Z


def test_atomic_result_is_the_value_before():
    y = torch.zeros(1, dtype=torch.int32)
    got = build_eager(tickets)(y, threads=2)
    assert y.item() == 64
    assert sorted(got.tolist()) == list(range(64))


def reducer(X):
    X: T.Tensor((16, 24), "float32")
    Y = T.empty((16,), "float32")
    with T.Kernel(1, threads=128) as bx:
        total = T.alloc_reducer((16,), "float32", op="sum")
        out = T.alloc_fragment((16,), "float32")
        T.reducer_init(total)
        for i, j in T.Parallel(16, 24):
            T.reducer_update(total[i], X[i, j])
        T.finalize_reducer(total, out)
        T.copy(out, Y)
    return Y


def test_reducer():
    x = torch.randint(-9, 9, (16, 24)).float()
    assert torch.equal(build_eager(reducer)(x), x.sum(1))


def convolution_tile(X, kernel: int, stride: int, dilation: int, pad: int):
    N, H, W, C = T.const("N, H, W, C")
    X: T.Tensor((N, H, W, C), "float32")
    oh = (H + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    ow = (W + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    rows, depth = N * oh * ow, kernel * kernel * C
    Y = T.empty((rows, depth), "float32")
    with T.Kernel(T.ceildiv(depth, 16), T.ceildiv(rows, 8), threads=128) as (bx, by):
        t = T.alloc_shared((8, 16), "float32")
        T.im2col(X, t, by, bx, kernel, stride, dilation, pad)
        T.copy(t, Y[by * 8, bx * 16])
    return Y


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pad"),
    [(3, 1, 1, 1), (3, 2, 1, 0), (1, 1, 1, 0), (3, 1, 2, 2)],
)
def test_im2col(kernel, stride, dilation, pad):
    x = torch.randn(2, 7, 6, 3)
    program = build_eager(
        convolution_tile,
        consts={"N": 2, "H": 7, "W": 6, "C": 3},
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pad=pad,
    )
    columns = torch.nn.functional.unfold(
        x.permute(0, 3, 1, 2), kernel, dilation=dilation, padding=pad, stride=stride
    )  # (N, C * k * k, positions), channel outermost
    want = (
        columns.view(2, 3, kernel * kernel, -1).permute(0, 3, 2, 1).reshape(-1, kernel * kernel * 3)
    )
    assert torch.equal(program(x), want)


def checked(X):
    X: T.Tensor((40,), "int32")
    Y = T.empty((40,), "int32")
    with T.Kernel(10, threads=128) as bx:
        for i in T.serial(4):
            T.device_assert(X[bx * 4 + i] >= 0, "negative")
            Y[bx * 4 + i] = X[bx * 4 + i]
    return Y


def test_failed_check_reports_its_statement():
    x = torch.arange(40, dtype=torch.int32)
    kernel = build_eager(checked)
    assert torch.equal(kernel(x), x)
    x[25] = -1
    with pytest.raises(KernelFailed) as error:
        kernel(x)
    assert error.value.status.code == 2
    assert error.value.status.statement >= 0


def any_and_all(X):
    X: T.Tensor((4, 9), "int32")
    Y = T.empty((4, 2), "bool")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment((4, 9), "int32")
        T.copy(X, x)
        for i in T.serial(4):
            Y[i, 0] = T.any_of(x[i, :])
            Y[i, 1] = T.all_of(x[i, :])
    return Y


def test_any_and_all():
    x = torch.randint(-1, 2, (4, 9), dtype=torch.int32)
    x[1] = 0
    x[2] = 7
    got = build_eager(any_and_all)(x)
    assert torch.equal(got, torch.stack([x.ne(0).any(1), x.ne(0).all(1)], 1))


def printed(X):
    X: T.Tensor((2,), "float32")
    with T.Kernel(1, threads=128) as bx:
        t = T.alloc_fragment((2,), "float32")
        T.copy(X, t)
        T.print(t, "tile")
        T.print(X[0] + 1, "sum")


def test_print(capfd):
    import ctypes

    build_eager(printed)(torch.tensor([1.5, -2.0]))
    ctypes.CDLL(None).fflush(None)
    text = capfd.readouterr().out
    assert "tile" in text
    assert "t[1] = -2" in text
    assert "= 2.5" in text


def wrapping(X):
    X: T.Tensor((16,), "int32")
    Y = T.empty((16,), "int32")
    Z = T.empty((16,), "int8")
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(16):
            Y[i] = X[i] * 1664525 + 1013904223
            Z[i] = T.cast(X[i], "int8") * T.cast(X[i], "int8") + T.cast(100, "int8")
    return Y, Z


def test_integers_wrap():
    x = torch.randint(-(2**31), 2**31 - 1, (16,), dtype=torch.int32)
    y, z = build_eager(wrapping)(x)
    assert torch.equal(y, ((x.long() * 1664525 + 1013904223 + 2**31) % 2**32 - 2**31).int())
    small = x.to(torch.int8).int()
    assert torch.equal(z, ((small * small + 100 + 128) % 256 - 128).to(torch.int8))


def var_lifetime():
    Y = T.empty((3, 4), "int32")
    with T.Kernel(3, threads=128) as bx:
        for k in T.serial(4):
            count = T.alloc_var("int32")
            count += k + 1
            Y[bx, k] = count
    return Y


def test_uninitialised_var_is_zero_once_a_block():
    assert build_eager(var_lifetime)().tolist() == [[1, 3, 6, 10]] * 3
