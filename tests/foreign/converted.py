"""Programs over kernels of others: what their authors add, at most twelve lines each."""
# ruff: noqa: E702

from __future__ import annotations

import triton
from triton.tools.tensor_descriptor import TensorDescriptor

import tileops
import tileops.language as T
from tests.foreign import converted_kernels as own
from tests.foreign import kernels, liger

D = T.DTypeVar("D", T.float16, T.bfloat16, T.float32)
norm, rotary, gates, losses, shared = map(
    liger.module, ("rms_norm", "rope", "swiglu", "cross_entropy", "utils")
)
settings, power = shared.calculate_settings, triton.next_power_of_2
transposes, boxes, assembly = (
    tileops.cuda(own.TRANSPOSE), tileops.cuda(own.BOXES), tileops.ptx(own.AXPY)
)  # fmt: skip


# fmt: off
@tileops.jit(name="their_rms_norm")
def rms_norm(X, W, eps: T.float32 = 1e-6):
    R, N = T.dynamic("R"), T.const("N")
    X: T.Tensor((R, N), D)
    W: T.Tensor((N,), D)
    Y, rstd = T.empty((R, N), D), T.empty((R,), T.float32)
    with T.Extern():
        block, warps = settings(N)
        norm._rms_norm_forward_kernel[(R,)](
            Y, N, X, N, W, 1, rstd, 1, N, eps, 0.0, 0, True, BLOCK_SIZE=block, num_warps=warps)
    return Y, rstd


@tileops.jit(name="their_rms_norm_gradient")
def rms_norm_gradient(dY, X, W, rstd, blocks: int = 132):
    R, N = T.dynamic("R"), T.const("N")
    dY: T.Tensor((R, N), D); X: T.Tensor((R, N), D)
    W: T.Tensor((N,), D); rstd: T.Tensor((R,), T.float32)
    dX, dW = T.empty((R, N), D), T.empty((blocks, N), T.float32)
    with T.Extern():
        block, warps = settings(N)
        norm._rms_norm_backward_kernel[(blocks,)](
            dY, N, dX, N, X, N, D, W, 1, rstd, 1, dW, N, R, N, 0.0, T.ceildiv(R, blocks), 0, True,
            BLOCK_SIZE=block, num_warps=warps)
    return dX, dW


@tileops.jit(name="their_rope", mutates=("Q", "K"))
def rope(Q, K, cos, sin, backward: bool = False):
    B, S = T.const("B"), T.dynamic("S")
    QH, KH, H = T.const("QH, KH, H")
    Q: T.Tensor((B, S, QH, H), D); K: T.Tensor((B, S, KH, H), D)
    cos: T.Tensor((1, S, H), D); sin: T.Tensor((1, S, H), D)
    with T.Extern():
        q, k, h = power(QH), power(KH), power(H)
        rotary._triton_rope[(B * S,)](
            Q, QH * H, K, KH * H, cos, H, sin, H, S, B, 1, QH, KH, H, q, k, h, h, H,
            BLOCK_SIZE=max(q, k), BACKWARD_PASS=backward)


@tileops.jit(name="their_swiglu")
def swiglu(A, B):
    R, N = T.dynamic("R"), T.const("N")
    A: T.Tensor((R, N), D); B: T.Tensor((R, N), D)
    C = T.empty((R, N), D)
    with T.Extern():
        block, warps = settings(N)
        gates._swiglu_forward_kernel[(R,)](
            A, B, C, N, 1.0, n_cols=N, BLOCK_SIZE=block, num_warps=warps)
    return C


@tileops.jit(name="their_swiglu_gradient", mutates=("A", "B"))
def swiglu_gradient(dC, A, B):
    R, N = T.dynamic("R"), T.const("N")
    dC: T.Tensor((R, N), D); A: T.Tensor((R, N), D); B: T.Tensor((R, N), D)
    with T.Extern():
        block, warps = settings(N)
        gates._swiglu_backward_kernel[(R,)](
            dC, A, B, N, 1.0, n_cols=N, BLOCK_SIZE=block, num_warps=warps)


@tileops.jit(name="their_cross_entropy", mutates=("X",))
def cross_entropy(X, Y, count: T.int32):
    R, V = T.dynamic("R, V")
    X: T.Tensor((R, V), D); Y: T.Tensor((R,), T.int64)
    loss = T.empty((R,), D)
    with T.Extern():
        losses.liger_cross_entropy_kernel[(R,)](
            X, V, Y, 1, None, loss, None, 1, None, 0, None, 0, V, count, count, 0.0, -100, 0.0, 0.0, "mean",
            None, False, False, False, BLOCK_SIZE=4096, HAS_WEIGHT=False, HAS_SOFTCAPPING=False,
            HAS_GRADIENTS=True, num_warps=32)
    return loss


@tileops.jit(name="their_cross_entropy_gradient", mutates=("X",))
def cross_entropy_gradient(X, grad):
    R, V = T.dynamic("R, V")
    X: T.Tensor((R, V), D); grad: T.Tensor((1,), T.float32)
    with T.Extern():
        shared.element_mul_kernel[(R,)](X, V, grad, V, BLOCK_SIZE=4096, num_warps=32)


@tileops.autotune(configs=tileops.triton_configs(own.matmul))
@tileops.jit(name="their_matmul")
def matmul(A, B, BM: int = 64, BN: int = 64, BK: int = 32, num_warps: int = 4, num_stages: int = 3):
    M, N, K = T.dynamic("M, N, K")
    A: T.Tensor((M, K), T.float16); B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Extern():
        own.matmul[lambda m: (triton.cdiv(M, m["BM"]), triton.cdiv(N, m["BN"]))](
            A, B, C, M, N, K, K, 1, N, 1, N, 1, BM=BM, BN=BN, BK=BK, num_warps=num_warps,
            num_stages=num_stages)
    return C


@tileops.jit(name="their_attention")
def attention(Q, K, V, scale: T.float32):
    (G, L), H = T.dynamic("G, L"), T.const("H")
    Q: T.Tensor((G, L, H), T.float16); K: T.Tensor((G, L, H), T.float16); V: T.Tensor((G, L, H), T.float16)
    O = T.empty((G, L, H), T.float16)
    with T.Extern():
        q, k, v, o = (TensorDescriptor.from_tensor(x, [1, n, H]) for x, n in ((Q, 64), (K, 32), (V, 32), (O, 64)))
        own.attention[(triton.cdiv(L, 64), G)](q, k, v, o, L, scale, 64, 32, H)
    return O


@tileops.jit(name="their_scan")
def scan(A, B):
    R, L = T.dynamic("R, L")
    A: T.Tensor((R, L), D); B: T.Tensor((R, L), D)
    states = T.empty((R, L), D)
    with T.Extern():
        own.scan[(R,)](A, B, states, L, A.stride(0), BLOCK=256)
    return states


@tileops.jit(name="their_copy")
def gluon_copy(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), D)
    Y = T.empty((N,), D)
    with T.Extern():
        kernels.gluon_copy[(triton.cdiv(N, 256),)](X, Y, N, BLOCK=256)
    return Y


@tileops.jit(name="their_transpose")
def transpose(X, tile: int = 32):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), D)
    Y = T.empty((N, M), D)
    with T.Extern():
        kernel = transposes[f"transpose<{T.cpp(D)}, {tile}>"]
        kernel.launch(grid=(T.ceildiv(N, tile), T.ceildiv(M, tile)), block=(tile, 8))(X, Y, M, N)
    return Y


@tileops.jit(name="their_boxes")
def doubled_boxes(X):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Extern():
        launch = boxes["doubled_boxes"].launch(grid=(T.ceildiv(N, 32), T.ceildiv(M, 16)), block=128)
        launch(T.tensor_map(X, [16, 32]), Y, M, N)
    return Y


@tileops.jit(name="their_axpy", mutates=("Y",))
def axpy(X, Y, a: T.float32):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32); Y: T.Tensor((N,), T.float32)
    with T.Extern():
        assembly["axpy"].launch(grid=T.ceildiv(N, 256), block=256)(X, Y, a, N)


@tileops.jit(name="their_split_product")
def split_product(A, B, split: int = 4):
    M, N, K = T.dynamic("M, N, K")
    A: T.Tensor((M, K), T.float16); B: T.Tensor((K, N), T.float16)
    parts, C = T.alloc_global((split, M, N), T.float32), T.empty((M, N), T.float32)
    with T.Extern():
        own.products[(triton.cdiv(M, 64), triton.cdiv(N, 64), split)](
            A, B, parts, M, N, K, K, N, M * N, BM=64, BN=64, BK=32, SPLIT=split)
        own.added[(triton.cdiv(M * N, 1024),)](parts, C, M * N, SPLIT=split, BLOCK=1024)
    return C
# fmt: on
