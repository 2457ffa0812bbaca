"""Kernels of the kinds that people write, as their authors would: nothing in them knows tileops."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

# Triton 3.9 renamed them.
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
SHIFT = tl.constexpr(0.0)


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(z + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def rms_fwd(X, Y, W, R, sx, sy, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(X + row * sx + c, mask=m, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(x * x, 0) / n + eps + SHIFT)
    tl.store(R + row, r)
    w = tl.load(W + c, mask=m, other=0.0)
    tl.store(Y + row * sy + c, x * r * w, mask=m)


@triton.jit
def matmul(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    pa = a + om[:, None] * sam + ok[None, :] * sak
    pb = b + ok[:, None] * sbk + on[None, :] * sbn
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        if EVEN_K:
            x = tl.load(pa, mask=om[:, None] < M, other=0.0)
            y = tl.load(pb, mask=on[None, :] < N, other=0.0)
        else:
            x = tl.load(pa, mask=(om[:, None] < M) & (ok[None, :] < K - k), other=0.0)
            y = tl.load(pb, mask=(on[None, :] < N) & (ok[:, None] < K - k), other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK * sak
        pb += BK * sbk
    tl.store(
        c + om[:, None] * scm + on[None, :] * scn, acc, mask=(om[:, None] < M) & (on[None, :] < N)
    )


@triton.jit
def optional_bias(X, Bias, Y, n, scale, flag, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(X + o, mask=m)
    if Bias is not None:
        x += tl.load(Bias + o, mask=m)
    if flag:
        x = x * scale
    tl.store(Y + o, x, mask=m)


@triton.jit
def by_strides(X, Y, sx, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    # A compile-time 1 has no `to`.
    tl.store(Y + o, tl.load(X + o * sx.to(tl.int64), mask=o < n), mask=o < n)


@triton.jit
def _store_one(p, v, m):
    tl.store(p, v, mask=m)


@triton.jit(noinline=True)
def _store_sum(p, q, v, m):
    _store_one(p, v + tl.load(q, mask=m), m)


@triton.jit
def stores_in_a_call(X, Y, Z, n):
    _store_sum(Y, Z, tl.load(X), n > 3)


@triton.jit
def stores_after_loops(X, Y, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = X + i
    q = Y + i
    for _ in range(n):
        p += BLOCK
        q += BLOCK
        tl.store(q, tl.load(p))
    if n > 3:  # noqa: SIM108
        r = Z + i
    else:
        r = Y + i
    tl.store(r, 1.0)


@triton.jit
def stores_after_while(X, Y, Z, n, BLOCK: tl.constexpr):
    p = X + tl.arange(0, BLOCK)
    q = Y + tl.arange(0, BLOCK)
    k = 0
    while k < n:
        p += 1
        q += 1
        k += 1
    tl.store(p, tl.load(q))
    tl.atomic_add(Z, 1)


@triton.jit
def stores_by_descriptor(X, Y, n, BLOCK: tl.constexpr):
    d = tl.make_tensor_descriptor(X, [n, 64], [64, 1], [BLOCK, 64])
    e = tl.make_tensor_descriptor(Y, [n, 64], [64, 1], [BLOCK, 64])
    e.store([0, 0], d.load([0, 0]))


@triton.jit
def refused(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, i.no_such_method(), mask=i < n)


@triton.jit
def reads_a_global(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), OUTSIDE)


@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BK"] == 0})
@triton.jit
def row_sums(x, y, K, sx, BK: tl.constexpr, EVEN_K: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BK,), tl.float32)
    for k in range(0, K, BK):
        i = k + tl.arange(0, BK)
        if EVEN_K:
            total += tl.load(x + row * sx + i)
        else:
            total += tl.load(x + row * sx + i, mask=i < K, other=0.0)
    tl.store(y + row, tl.sum(total, 0))


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_warps=2),
        triton.Config({"BLOCK": 1024}, num_warps=8),
    ],
    key=["n"],
    reset_to_zero=["y"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_double(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y + i, tl.load(x + i) * 2)
    else:
        tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=1)], key=[])
@triton.jit
def configured_double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}, pre_hook=lambda args: None)], key=[],
    prune_configs_by={"early_config_prune": lambda configs, args, **kwargs: configs},
)  # fmt: skip
@triton.jit
def hooked_double(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x) * 2)


@gluon.jit
def gluon_copy(x, y, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y + i, gl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def boxes_plus(src, n, dst, BM: tl.constexpr):
    i = tl.program_id(0) * BM
    dst.store([i, 0], src.load([i, 0]) + n)


@gluon.jit
def gluon_boxes(src, dst, bytes: gl.constexpr):
    box = gl.allocate_shared_memory(src.dtype, src.block_type.shape, src.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    i = gl.program_id(0) * src.block_type.shape[0]
    mbarrier.expect(arrived, bytes)
    tma_load(src, [i, 0], arrived, box)
    mbarrier.wait(arrived, 0)
    tma_store(dst, [i, 0], box)
    tma.store_wait(0)


@triton.jit
def declared(x, y, n: tl.int32, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def _count(p, n):
    tl.atomic_add(p, n.to(tl.float32))


@triton.jit
def count_twice(p, n):
    tl.atomic_add(p, 2.0 * n)


@triton.jit
def counted(x, y, n):
    _count(y, n)


@triton.jit
def shifted(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + SHIFT, mask=i < n)


PLAIN = 3


@triton.jit
def reads_a_plain_global(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), PLAIN)


def closed_over(tensor):
    @triton.jit
    def reads_a_closure(x, n, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), tensor)

    return reads_a_closure


@triton.jit
def scaled_rows(x, w, y, n, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    scaled = tl.load(x + row * n + i, mask=i < n) * tl.load(w + i, mask=i < n) * factor
    tl.store(y + row * n + i, scaled, mask=i < n)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_warps=2),
        triton.Config({"BLOCK": 1024}, num_warps=8),
    ],
    key=["n"],
    restore_value=["x"],
)
@triton.jit
def restored(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2 + 1, mask=i < n)
