"""The programs behind gated activations: SiLU and GELU of a gate times another tensor."""

from __future__ import annotations

import math
from typing import Any

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.arguments import is_one_of
from tileops.ops.programs.rows import DTYPES, accumulator

DTYPE = T.DTypeVar("dtype", *DTYPES)
BLOCK = 2048
SILU = "silu"
APPROXIMATIONS = GELU, GELU_TANH = "none", "tanh"
_INV_SQRT_2 = 1 / math.sqrt(2)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715  # of the approximation of GELU by tanh


def activation(x: Any, kind: str) -> Any:
    """The value of the activation at ``x``."""
    if kind == SILU:
        return x / (1 + T.exp(-x))
    if kind == GELU:
        return x * (0.5 + 0.5 * T.erf(x * _INV_SQRT_2))
    return x * (0.5 + 0.5 * T.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x * x * x)))


def slope(x: Any, kind: str) -> Any:
    """The derivative of the activation at ``x``."""
    if kind == SILU:
        sigmoid = 1 / (1 + T.exp(-x))
        return sigmoid * (1 + x * (1 - sigmoid))
    if kind == GELU:
        density = T.exp(-0.5 * x * x) * (_INV_SQRT_2 / math.sqrt(math.pi))
        return 0.5 + 0.5 * T.erf(x * _INV_SQRT_2) + x * density
    t = T.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x * x * x))
    inner = _SQRT_2_OVER_PI * (1 + 3 * _CUBIC * x * x)
    return 0.5 + 0.5 * t + 0.5 * x * (1 - t * t) * inner


@T.macro
def gate_elements(gate, up, out, first, kind):
    """Write a block of elements: the activation of ``gate``, rounded, times ``up``."""
    for i in T.Parallel(BLOCK):
        a = activation(T.cast(gate[first + i], accumulator(gate.dtype)), kind)
        out[first + i] = T.cast(a, gate.dtype) * up[first + i]


@jit(name=f"{NAMESPACE}::silu_mul", contiguous="copy")
def silu_mul(gate, up):
    gate: T.Tensor((...,), DTYPE)
    up: T.Tensor((...,), DTYPE)
    out = T.empty((...,), DTYPE)
    with T.Kernel(T.ceildiv(gate.shape[0], BLOCK), threads=256) as block:
        gate_elements(gate, up, out, block * BLOCK, SILU)
    return out


@jit(name=f"{NAMESPACE}::gelu_mul", contiguous="copy")
def gelu_mul(gate, up, approximate: str = GELU):
    gate: T.Tensor((...,), DTYPE)
    up: T.Tensor((...,), DTYPE)
    is_one_of("gelu_mul", "approximate", approximate, APPROXIMATIONS)
    out = T.empty((...,), DTYPE)
    with T.Kernel(T.ceildiv(gate.shape[0], BLOCK), threads=256) as block:
        gate_elements(gate, up, out, block * BLOCK, approximate)
    return out


@jit(name=f"{NAMESPACE}::gate_backward", contiguous="copy")
def gate_backward(d_out, gate, up, kind: str = SILU):
    d_out: T.Tensor((...,), DTYPE)
    gate: T.Tensor((...,), DTYPE)
    up: T.Tensor((...,), DTYPE)
    is_one_of("gate_backward", "kind", kind, (SILU, *APPROXIMATIONS))
    d_gate = T.empty((...,), DTYPE)
    d_up = T.empty((...,), DTYPE)
    acc = accumulator(gate.dtype)
    with T.Kernel(T.ceildiv(gate.shape[0], BLOCK), threads=256) as block:
        for i in T.Parallel(BLOCK):
            at = block * BLOCK + i
            x = T.cast(gate[at], acc)
            d = T.cast(d_out[at], acc)
            d_gate[at] = T.cast(d * T.cast(up[at], acc) * slope(x, kind), gate.dtype)
            d_up[at] = T.cast(d * activation(x, kind), gate.dtype)
    return d_gate, d_up
