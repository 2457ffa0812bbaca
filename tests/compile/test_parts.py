"""Extents in parts: what attention on a latent cache needs on a GPU."""

from __future__ import annotations

import re

import pytest

import tileops.language as T
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.frontend.trace import trace
from tileops.target import parse_target


def latent_attention(Q, KV):
    Q: T.Tensor((64, 576), T.float16)
    KV: T.Tensor((4096, 576), T.float16)
    O = T.empty((64, 512), T.float16)
    with T.Kernel(1, threads=256) as _:
        q = T.alloc_shared((64, 576), T.float16)
        kv = T.alloc_shared((64, 576), T.float16)
        s = T.alloc_fragment((64, 64), T.float32)
        p = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 512), T.float32)
        top = T.alloc_fragment((64,), T.float32)
        old = T.alloc_fragment((64,), T.float32)
        total = T.alloc_fragment((64,), T.float32)
        part = T.alloc_fragment((64,), T.float32)
        T.copy(Q, q)
        T.clear(acc)
        T.clear(total)
        T.fill(top, -T.infinity("float32"))
        for k in T.Pipelined(64, num_stages=2):
            T.copy(KV[k * 64, 0], kv)
            T.gemm(q, kv, s, transpose_B=True, clear_accum=True)
            T.copy(top, old)
            T.reduce_max(s, top, dim=1, clear=False)
            for i, j in T.Parallel(64, 64):
                s[i, j] = T.exp2((s[i, j] - top[i]) * 0.06)
            T.reduce_sum(s, part, dim=1)
            for i in T.Parallel(64):
                total[i] = total[i] * T.exp2((old[i] - top[i]) * 0.06) + part[i]
            for i, j in T.Parallel(64, 512):
                acc[i, j] *= T.exp2((old[i] - top[i]) * 0.06)
            T.copy(s, p)
            T.gemm(p, kv[:, :512], acc)
        for i, j in T.Parallel(64, 512):
            acc[i, j] = acc[i, j] / total[i]
        T.copy(acc, O)
    return O


def text_for(target: str) -> KernelCode:
    program = trace(latent_attention, name="latent_attention", static={}, consts={})
    return generate(program, parse_target(target), Specialization(fast=True))


@pytest.mark.parametrize("target", ["cuda:sm_90", "cuda:sm_100"])
def test_latent_attention_fits_in_shared_memory(target: str) -> None:
    code = text_for(target)
    assert not re.search(r"\b1024\b", code.source)
    artifact = compile_kernel(code, parse_target(target), {})
    assert artifact.launches[0].shared_bytes <= parse_target(target).shared_limit
    if target == "cuda:sm_90":
        assert "wgmma.mma_async" in artifact.files["launch0.ptx"].decode()
