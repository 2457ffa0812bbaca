"""Attention forward, full and causal, with as many or fewer key heads: head dimensions 64 to 256."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.pair import Pair, random_normal
from benchmarks.pairs.attention_reference import attend_heads, causal
from benchmarks.pairs.online_softmax import HIDDEN, LOG2_E, softmax_step


def program(
    T, B, S, H, groups, D, DV, is_causal, dtype, block_M=128, block_N=128, stages=2, threads=256
):
    scale = D**-0.5 * LOG2_E
    step = softmax_step(T, block_M, block_N, DV, scale)

    @T.prim_func
    def main(
        Q: T.Tensor((B, S, H, D), dtype),
        K: T.Tensor((B, S, H // groups, D), dtype),
        V: T.Tensor((B, S, H // groups, DV), dtype),
        O: T.Tensor((B, S, H, DV), dtype),
    ):
        with T.Kernel(T.ceildiv(S, block_M), H, B, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((block_M, D), dtype)
            K_s = T.alloc_shared((block_N, D), dtype)
            V_s = T.alloc_shared((block_N, DV), dtype)
            O_s = T.alloc_shared((block_M, DV), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, DV), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, HIDDEN)
            keys = T.min(S, (bx + 1) * block_M) if is_causal else S
            for k in T.Pipelined(T.ceildiv(keys, block_N), num_stages=stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_s)
                if is_causal:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(
                            bx * block_M + i >= k * block_N + j, 0, HIDDEN
                        )
                elif S % block_N:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(k * block_N + j < S, 0, HIDDEN)
                else:
                    T.clear(scores)
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                step(scores, weights, acc, top, before, rescale, part, total)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_s)
                T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, DV):
                acc[i, j] /= total[i]
            T.copy(acc, O_s)
            T.copy(O_s, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def inputs(B, S, H, groups, D, DV, is_causal, dtype):
    shapes = ((H, D), (H // groups, D), (H // groups, DV))
    Q, K, V = (random_normal(B, S, *shape, dtype=dtype) for shape in shapes)
    return Q, K, V, torch.empty(B, S, H, DV, dtype=Q.dtype)


def reference(Q, K, V, O, S, D, is_causal, **_):
    visible = causal(S, Q.device) if is_causal else None
    return (attend_heads(Q, K, V, D**-0.5, visible=visible),)


def peer(Q, K, V, O, groups, is_causal, **_):
    q, k, v = (x.transpose(1, 2) for x in (Q, K, V))

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=is_causal, enable_gqa=groups > 1
            )

    return call


def flops(B, S, H, D, DV, is_causal, **_):
    return 2.0 * B * H * S * S * (D + DV) * (0.5 if is_causal else 1.0)


def _pair(name, B, S, H, D, is_causal=False, DV=0, groups=1, dtype="bfloat16", **tiles):
    kind = {"groups": groups, "is_causal": is_causal, "dtype": dtype}
    return Pair(
        name, program, inputs, reference, outputs=(3,),
        # The weights are rounded before the product: an error of one unit of each term, of random
        # sign, is one unit of the row; 8 times that for the largest of many results.
        spread=8 * (2.0**-8 if dtype == "bfloat16" else 2.0**-11),
        sizes={"B": B, "S": S, "H": H, "D": D, "DV": DV or D, **kind},
        small={"B": 1, "S": 100, "H": 2 * groups, "D": 32, "DV": 32 if DV in (0, D) else 64, **kind},
        tiles=tiles, small_tiles={"block_M": 64, "block_N": 64, "threads": 128},
        flops=flops, peer=peer, peer_name="cuDNN",
    )  # fmt: skip


PAIRS = (
    _pair("attention fp16 4x4096x32x128", 4, 4096, 32, 128, dtype="float16"),
    _pair("attention fp16 causal 4x4096x32x128", 4, 4096, 32, 128, True, dtype="float16"),
    _pair("attention bf16 2x6144x32x128", 2, 6144, 32, 128),
    _pair("attention bf16 causal 2x6144x32x128", 2, 6144, 32, 128, True),
    _pair("attention bf16 causal 1x16384x32x128", 1, 16384, 32, 128, True),
    # Llama 3 8B: four query heads share a key head.
    _pair("attention bf16 gqa causal 2x8192x32x128", 2, 8192, 32, 128, True, groups=4),
    _pair("attention bf16 4x4096x32x64", 4, 4096, 32, 64),
    _pair("attention bf16 causal 4x4096x32x64", 4, 4096, 32, 64, True),
    _pair("attention bf16 4x4096x32x96", 4, 4096, 32, 96),
    # DeepSeek-V3: keys of 192, values of 128.
    _pair("attention bf16 causal 1x8192x64x192-128", 1, 8192, 64, 192, True, DV=128),
    _pair("attention bf16 causal 2x4096x16x256", 2, 4096, 16, 256, True, block_N=64),
)
