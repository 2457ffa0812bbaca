"""Programs of blocks in clusters, each with inputs and its exact result: CPUs and sm_90 run them."""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


def handed_around(X):
    """Each block adds up what the blocks of its cluster hand on, round by round."""
    N = T.dynamic("N")
    X: T.Tensor((N, 64), T.int32)
    Y = T.empty((N, 64), T.int32)
    with T.ClusterKernel(N, cluster_dims=(4,), threads=64) as bx:
        tx = T.get_thread_binding()
        own = T.alloc_shared((64,), T.int32)
        other = T.alloc_shared((64,), T.int32)
        total = T.alloc_var(T.int32, 0)
        own[tx] = X[bx, tx]
        for _ in T.serial(4):
            total += own[tx]
            T.copy_cluster(own, other, dst_block=(T.block_rank_in_cluster() + 1) % 4)
            T.cluster_sync()
            T.copy(other, own)
            T.cluster_arrive()
            T.cluster_wait()
        Y[bx, tx] = total
    return Y


def handed_around_expected(x: torch.Tensor) -> torch.Tensor:
    sums = x.view(-1, 4, 64).sum(1, keepdim=True, dtype=torch.int32)
    return sums.expand(-1, 4, 64).reshape(x.shape)


def sent_to_some(X):
    """A cluster of 2 x 3 blocks, four of which get what the first of them loads."""
    X: T.Tensor((4, 6, 64), T.float16)
    Y = T.empty((5, 4, 6, 64), T.float16)
    with T.Kernel(4, 6, threads=32, cluster_dims=(2, 3)) as (bx, by):
        tile = T.alloc_shared((64,), T.float16)
        for r in T.serial(4):
            T.copy_cluster(X[bx, by, :], tile, cluster_mask=0b101110)
            for j in T.Parallel(64):
                Y[r, bx, by, j] = tile[j] * T.cast(r + 1, T.float16)
        for j in T.Parallel(64):
            Y[4, bx, by, j] = T.cast(T.block_rank_in_cluster(), T.float16)
    return Y


def sent_to_some_expected(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    ranks = torch.zeros_like(x)
    for bx in range(4):
        for by in range(6):
            rank = bx % 2 + by % 3 * 2
            ranks[bx, by] = rank
            if 0b101110 >> rank & 1:
                out[bx, by] = x[bx // 2 * 2 + 1, by // 3 * 3]
    return torch.stack([*(out * r for r in range(1, 5)), ranks])


def sent_where_a_tensor_says(X, to):
    """Each block sends its row to a block of its cluster, if it has one of that number."""
    N = T.dynamic("N")
    X: T.Tensor((N, 32), T.int32)
    to: T.Tensor((N,), T.int32)
    Y = T.empty((N, 32), T.int32)
    with T.ClusterKernel(N, cluster_dims=(2,), threads=32) as bx:
        own = T.alloc_shared((32,), T.int32)
        got = T.alloc_shared((32,), T.int32)
        T.copy(X[bx, :], own)
        T.clear(got)
        T.cluster_sync()
        T.copy_cluster(own, got, dst_block=to[bx])
        T.cluster_sync()
        T.copy(got, Y[bx, :])
    return Y


TO = torch.tensor([1, -1, 2, 0, 2**31 - 1, -(2**31), 1, 0], dtype=torch.int32)


def sent_where_a_tensor_says_expected(x: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for block, rank in enumerate(to.tolist()):
        if 0 <= rank < 2:
            out[block // 2 * 2 + rank] = x[block]
    return out


CLUSTERS = [
    Construct(handed_around, lambda: (ints(12, 64),), handed_around_expected),
    Construct(
        sent_where_a_tensor_says,
        lambda: (ints(8, 32), TO.clone()),
        sent_where_a_tensor_says_expected,
    ),
    Construct(sent_to_some, lambda: (torch.randn(4, 6, 64).half(),), sent_to_some_expected),
]
