"""Native sparse attention: every query attends to the blocks of keys that an index tensor names."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T
from tests.programs.attention import LOG2_E, NONE, attend, softmax_step
from tests.programs.family_case import Bounded, FamilyCase, randn, rounded


@tileops.jit
def native_sparse_attention(Q, K, V, blocks, block: int = 16):
    """One kernel block for each query and key head: its group of query heads is the tile's rows.

    ``blocks[b, t, h, i]`` is the number of a block of keys, negative for none; keys after the query
    are hidden.
    """
    B, S, HQ, H, D, N = T.const("B, S, HQ, H, D, N")
    Q: T.Tensor((B, S, HQ, D), "float16")
    K: T.Tensor((B, S, H, D), "float16")
    V: T.Tensor((B, S, H, D), "float16")
    blocks: T.Tensor((B, S, H, N), "int32")
    O = T.empty((B, S, HQ, D), "float16")
    groups = HQ // H
    scale = D**-0.5 * LOG2_E
    with T.Kernel(S, H, B, threads=32) as (t, h, b):
        Q_s = T.alloc_shared((groups, D), "float16")
        K_s = T.alloc_shared((block, D), "float16")
        V_s = T.alloc_shared((block, D), "float16")
        scores = T.alloc_fragment((groups, block), "float32")
        weights = T.alloc_fragment((groups, block), "float16")
        acc = T.alloc_fragment((groups, D), "float32")
        top = T.alloc_fragment((groups,), "float32")
        before = T.alloc_fragment((groups,), "float32")
        rescale = T.alloc_fragment((groups,), "float32")
        part = T.alloc_fragment((groups,), "float32")
        total = T.alloc_fragment((groups,), "float32")
        T.copy(Q[b, t, h * groups : (h + 1) * groups, :], Q_s)
        T.clear(acc)
        T.clear(total)
        T.fill(top, NONE)
        for i in T.Pipelined(N, num_stages=1):
            start = blocks[b, t, h, i] * block
            if start >= 0 and start <= t:
                T.copy(K[b, start : start + block, h, :], K_s)
                for g, j in T.Parallel(groups, block):
                    scores[g, j] = T.if_then_else(start + j <= t, 0.0, NONE)
                T.gemm(Q_s, K_s, scores, transpose_B=True)
                softmax_step(
                    scores, weights, acc, top, before, rescale, part, total, groups, block, D, scale
                )
                T.copy(V[b, start : start + block, h, :], V_s)
                T.gemm(weights, V_s, acc)
        for g, j in T.Parallel(groups, D):
            acc[g, j] /= total[g]
        T.copy(acc, O[b, t, h * groups : (h + 1) * groups, :])
    return O


def _inputs() -> tuple[torch.Tensor, ...]:
    batch, length, heads, key_heads, dim, chosen, block = 1, 40, 8, 2, 32, 3, 16
    count = -(-length // block)
    blocks = torch.full((batch, length, key_heads, chosen), -1, dtype=torch.int32)
    for t in range(length):
        for h in range(key_heads):
            own = t // block
            others = [n for n in torch.randperm(count).tolist() if n != own]
            picked = [own, *others][: 1 + int(torch.randint(0, chosen, (1,)))]
            blocks[0, t, h, : len(picked)] = torch.tensor(picked)
    query = randn(batch, length, heads, dim, dtype=torch.float16)
    keys = (randn(batch, length, key_heads, dim, dtype=torch.float16) for _ in range(2))
    return (query, *keys, blocks)


def _reference(q, k, v, blocks, block: int = 16) -> list[Bounded]:
    length, groups = q.shape[1], q.shape[2] // k.shape[2]
    at = torch.arange(length)
    # (batch, key head, query, key): the key's block is among those chosen, and it is not later.
    chosen = (blocks.transpose(1, 2)[..., None, :] == (at // block)[:, None]).any(-1)
    visible = (chosen & (at[None] <= at[:, None])).repeat_interleave(groups, 1)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    result = attend(q, k, v, visible)
    return [rounded(tuple(x.transpose(1, 2) for x in result), q.dtype)]


CASES = (FamilyCase("native_sparse_attention", native_sparse_attention, _inputs, _reference),)
