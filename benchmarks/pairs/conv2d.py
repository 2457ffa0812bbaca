"""A two-dimensional convolution, channels last, as a matrix product over gathered patches."""

import torch
import torch.nn.functional as F

from benchmarks.pair import Pair, random_normal


def program(
    T, N, C, H, W, out_C, kernel, stride, pad, block_M=128, block_N=128, block_K=64, stages=3,
    threads=256,
):  # fmt: skip
    dtype = "float16"
    out_H, out_W = ((n + 2 * pad - kernel) // stride + 1 for n in (H, W))
    pixels, taps = N * out_H * out_W, kernel * kernel * C

    @T.prim_func
    def main(
        X: T.Tensor((N, H, W, C), dtype),
        filters: T.Tensor((taps, out_C), dtype),
        Y: T.Tensor((pixels, out_C), dtype),
    ):
        with T.Kernel(T.ceildiv(out_C, block_N), T.ceildiv(pixels, block_M), threads=threads) as (
            bx,
            by,
        ):
            X_s = T.alloc_shared((block_M, block_K), dtype)
            F_s = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(taps, block_K), num_stages=stages):
                T.im2col(X, X_s, by, k, kernel, stride, 1, pad)
                T.copy(filters[k * block_K, bx * block_N], F_s)
                T.gemm(X_s, F_s, acc)
            T.copy(acc, Y[by * block_M, bx * block_N])

    return main


def inputs(N, C, H, W, out_C, kernel, stride, pad):
    out_H, out_W = ((n + 2 * pad - kernel) // stride + 1 for n in (H, W))
    X = random_normal(N, H, W, C)
    filters = random_normal(kernel * kernel * C, out_C)
    return X, filters, torch.empty(N * out_H * out_W, out_C, dtype=X.dtype)


def _weight(filters, kernel, C):
    """Filters as torch wants them: (out_C, C, kernel, kernel), channels last."""
    return filters.view(kernel, kernel, C, -1).permute(3, 2, 0, 1)


def reference(X, filters, Y, C, kernel, stride, pad, **_):
    # As products of shifted images: cuDNN has no fast float64 convolution.
    N, H, W, _ = X.shape
    padded = F.pad(X.double(), (0, 0, pad, pad, pad, pad))
    taps = filters.view(kernel, kernel, C, -1).double()
    rows, columns = ((n + 2 * pad - kernel) // stride + 1 for n in (H, W))
    out = torch.zeros(N, rows, columns, taps.shape[-1], dtype=torch.float64, device=X.device)
    for i in range(kernel):
        for j in range(kernel):
            seen = padded[:, i : i + stride * rows : stride, j : j + stride * columns : stride]
            out += seen[:, :rows, :columns] @ taps[i, j]
    return (out.flatten(0, 2),)


def peer(X, filters, Y, C, kernel, stride, pad, **_):
    image = X.permute(0, 3, 1, 2)
    weight = _weight(filters, kernel, C).contiguous(memory_format=torch.channels_last)
    return lambda: F.conv2d(image, weight, stride=stride, padding=pad)


def _flops(N, C, H, W, out_C, kernel, stride, pad):
    out_H, out_W = ((n + 2 * pad - kernel) // stride + 1 for n in (H, W))
    return 2.0 * N * out_H * out_W * kernel * kernel * C * out_C


def _pair(name, N, C, size, out_C, stride=1):
    kind = {"kernel": 3, "stride": stride, "pad": 1}
    return Pair(
        name, program, inputs, reference, outputs=(2,),
        spread=2.0**-13,  # as in matmul.py
        sizes={"N": N, "C": C, "H": size, "W": size, "out_C": out_C, **kind},
        small={"N": 2, "C": 32, "H": 9, "W": 7, "out_C": 40, **kind},
        small_tiles={"block_M": 64, "block_N": 64, "block_K": 32, "stages": 2, "threads": 128},
        flops=_flops, peer=peer, peer_name="cuDNN",
    )  # fmt: skip


PAIRS = (
    # ResNet-50: the 3 x 3 convolutions of the third stage, and the first of the fourth.
    _pair("conv2d fp16 128x14x14x256", 128, 256, 14, 256),
    _pair("conv2d fp16 stride 2 128x28x28x256", 128, 256, 28, 256, 2),
)
