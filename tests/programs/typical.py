"""The programs that the compile tests and the golden texts cover, at sizes that people use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from examples import elementwise_add, flash_attention, matmul, rms_norm, softmax, split_k
from tests.kit.traced import specialise
from tests.programs import arg_reductions, constructs
from tileops.frontend.trace import trace
from tileops.ir.program import Program


def _meta(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _matmul(size: int, **options: Any) -> Program:
    return specialise(matmul.matmul_relu, (_meta(size, size), _meta(size, size)), **options)


def _attention(length: int, dim: int, **options: Any) -> Program:
    return specialise(flash_attention.attention, (_meta(2, 4, length, dim),) * 3, **options)


def _rms_norm(row: int) -> Program:
    x, w = _meta(64, row, dtype=torch.bfloat16), _meta(row, dtype=torch.bfloat16)
    return specialise(rms_norm.rms_norm, (x, w, 1e-5))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "matmul_relu": lambda: _matmul(4096, block_M=128, block_N=128, block_K=64),
    "matmul_relu_odd": lambda: _matmul(1000),
    "matmul_dynamic": lambda: specialise(matmul.matmul_dynamic, (_meta(64, 96), _meta(96, 80))),
    "add": lambda: specialise(
        elementwise_add.add,
        (_meta(1000, dtype=torch.float32), _meta(1000, dtype=torch.float32)),
    ),
    "rms_norm_768": lambda: _rms_norm(768),
    "rms_norm_1000": lambda: _rms_norm(1000),
    "rms_norm_5120": lambda: _rms_norm(5120),
    "softmax": lambda: specialise(softmax.softmax, (_meta(8, 2049, dtype=torch.float32),)),
    "narrow_extremes": lambda: trace(
        constructs.narrow_extremes, name="narrow_extremes", static={}, consts={}
    ),
    "places": lambda: trace(
        arg_reductions.places_beside_parts, name="places", static={}, consts={}
    ),
    "split_k": lambda: specialise(split_k.matmul_split_k, (_meta(512, 4096), _meta(4096, 512))),
    "attention": lambda: _attention(4096, 128, block_M=128),
    "attention_64": lambda: _attention(1024, 64),
    "attention_causal_odd": lambda: _attention(
        1021, 64, block_M=128, is_causal=True, dtype="bfloat16"
    ),
}
