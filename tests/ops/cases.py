"""The operators of tileops beside what torch computes: one case for each form of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tileops import ops

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A call of an operator, and the same in torch operations that take any float dtype."""

    name: str
    call: Callable[..., Any]
    eager: Callable[..., Any]
    inputs: Callable[[int, int, torch.dtype, str], Tensors]  # of rows, columns, dtype, device
    other: Tensors = ()

    def __str__(self) -> str:
        return self.name


def _rows(count: int) -> Callable[..., Tensors]:
    def make(rows: int, columns: int, dtype: torch.dtype, device: str) -> Tensors:
        return tuple(_random(rows, columns, dtype=dtype, device=device) for _ in range(count))

    return make


def _rows_and_vectors(rows_count: int, vectors: int) -> Callable[..., Tensors]:
    def make(rows: int, columns: int, dtype: torch.dtype, device: str) -> Tensors:
        whole = _rows(rows_count)(rows, columns, dtype, device)
        return whole + tuple(_random(columns, dtype=dtype, device=device) for _ in range(vectors))

    return make


def _random(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).to(device)


def _rms(x: torch.Tensor, w: torch.Tensor | None, offset: float = 0.0) -> torch.Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    y = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (y if w is None else y * (w.to(y.dtype) + offset)).to(x.dtype)


def _llama(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return w * _rms(x, None)


def _columns(x: torch.Tensor) -> tuple[int, ...]:
    return (x.shape[-1],)


def _targets(x: torch.Tensor) -> torch.Tensor:
    """Class numbers that depend on the number of rows and classes only; one row is ignored."""
    rows, classes = x.shape
    target = (torch.arange(rows, device=x.device) * 7919) % max(classes, 1)
    target[1::5] = -100
    return target


def _loss(**options: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def ours(x: torch.Tensor) -> Any:
        return ops.cross_entropy(x, _targets(x), **options)

    def eager(x: torch.Tensor) -> Any:
        wide = x if x.dtype == torch.float64 else x.float()
        return F.cross_entropy(wide, _targets(x), **options)

    return ours, eager


CASES = (
    Case(
        "rms_norm", lambda x, w: ops.rms_norm(x, _columns(x), w, 1e-6), _rms, _rows_and_vectors(1, 1)
    ),
    Case("rms_norm_alone", lambda x: ops.rms_norm(x, _columns(x), None, 1e-6),
         lambda x: _rms(x, None), _rows(1)),
    Case("rms_norm_gemma", lambda x, w: ops.rms_norm(x, _columns(x), w, 1e-6, weight_offset=1.0),
         lambda x, w: _rms(x, w, 1.0), _rows_and_vectors(1, 1)),
    Case("rms_norm_llama", lambda x, w: ops.rms_norm(x, _columns(x), w, 1e-6, rounding="llama"),
         _llama, _rows_and_vectors(1, 1)),
    Case("add_rms_norm", lambda x, r, w: ops.add_rms_norm(x, r, _columns(x), w, 1e-6),
         lambda x, r, w: (_rms(x + r, w), x + r), _rows_and_vectors(2, 1)),
    Case("layer_norm", lambda x, w, b: ops.layer_norm(x, _columns(x), w, b),
         lambda x, w, b: F.layer_norm(x, _columns(x), w, b), _rows_and_vectors(1, 2)),
    Case("layer_norm_bias", lambda x, b: ops.layer_norm(x, _columns(x), None, b),
         lambda x, b: F.layer_norm(x, _columns(x), None, b), _rows_and_vectors(1, 1)),
    Case("add_layer_norm", lambda x, r, w, b: ops.add_layer_norm(x, r, _columns(x), w, b),
         lambda x, r, w, b: (F.layer_norm(x + r, _columns(x), w, b), x + r),
         _rows_and_vectors(2, 2)),
    Case("silu_mul", ops.silu_mul, lambda g, u: F.silu(g) * u, _rows(2)),
    Case("gelu_mul", ops.gelu_mul, lambda g, u: F.gelu(g) * u, _rows(2)),
    Case("gelu_mul_tanh", lambda g, u: ops.gelu_mul(g, u, "tanh"),
         lambda g, u: F.gelu(g, approximate="tanh") * u, _rows(2)),
    Case("softmax", lambda x: ops.softmax(x, -1), lambda x: torch.softmax(x, -1), _rows(1)),
    Case("softmax_first", lambda x: ops.softmax(x, 0), lambda x: torch.softmax(x, 0), _rows(1)),
    Case("cross_entropy", *_loss(), _rows(1)),
    Case("cross_entropy_smooth", *_loss(label_smoothing=0.1, reduction="sum"), _rows(1)),
    Case("cross_entropy_rows", *_loss(reduction="none"), _rows(1)),
)  # fmt: skip
