"""RMSNorm and a gate whose results are 8-bit numbers, with a scale for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError
from tileops.ops import arguments, choosing, decompositions, norms
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import quantised_rows as programs
from tileops.ops.programs.norms import ROUNDINGS
from tileops.ops.sharding import by_rows

DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)


def rms_norm_quant(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None,
    eps: float | None = None, *, scale: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.float8_e4m3fn, weight_offset: float = 0.0,
    rounding: str = "torch",
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``rms_norm(input, ...) / scale`` in 8 bits; returns ``(out, scale)``, whose product it is.

    The norm is rounded to the dtype of ``input``, as ``rms_norm`` returns it. Then, in float32
    (float64 for float64), the scale of a row is the largest absolute value of its norm by the
    largest number of ``out_dtype`` (448, 57344, 127), and 1 where that is 0. The quotient of norm
    and scale is rounded to the nearest number, ties to even. What is too large becomes the largest
    number of its sign, in int8 127 or -127. NaN stays; in int8 it becomes 0, and the scale of its
    row is NaN. A row with an infinity has an infinite scale.

    input, normalized_shape, weight, eps, weight_offset, rounding: as in ``rms_norm``. All
               normalised dimensions are one row.
    scale:     a float32 tensor of one element for all rows; None for a scale for each row.
    out_dtype: float8_e4m3fn, float8_e5m2 or int8.

    Returns ``out``, of the shape of ``input``, and the given scale or float32 scales of shape
    (..., 1). There are no gradients. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    op = "rms_norm_quant"
    x, w, _, eps = norms.prepared(op, input, normalized_shape, weight, None, eps)
    arguments.is_one_of(op, "rounding", rounding, ROUNDINGS)
    given, dtype = _given(op, scale, out_dtype)
    if choosing.decomposes(op, x.shape[-1], (input, weight)):
        return decompositions.rms_norm_quant(
            input, normalized_shape, weight, eps, scale=scale, out_dtype=out_dtype,
            weight_offset=weight_offset, rounding=rounding,
        )  # fmt: skip
    out, scales = programs.rms_norm_quant(
        x, w, given, eps, weight_offset, rounding=rounding, dtype=dtype
    )
    return out.view(input.shape), scales if scale is None else scale


def silu_mul_quant(
    gate: torch.Tensor, up: torch.Tensor, *, scale: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """``silu(gate) * up / scale`` in 8 bits; returns ``(out, scale)``, whose product it is.

    The product is rounded to the dtype of ``gate``, as ``silu_mul`` returns it. Scales, roundings
    and results are those of ``rms_norm_quant``.

    gate, up:         of one shape, of at least one dimension, and one dtype: float16, bfloat16,
                      float32 or float64. The last dimension is a row.
    scale, out_dtype: as in ``rms_norm_quant``.
    """
    op = "silu_mul_quant"
    arguments.is_float(op, "gate", gate)
    arguments.is_like(op, "up", up, "gate", gate)
    if gate.dim() == 0:
        raise ArgumentError(f"{op}: gate: expected at least one dimension, got a number")
    given, dtype = _given(op, scale, out_dtype)
    if choosing.decomposes(op, gate.shape[-1], (gate, up)):
        return decompositions.silu_mul_quant(gate, up, scale=scale, out_dtype=out_dtype)
    out, scales = programs.silu_mul_quant(gate, up, given, dtype=dtype)
    return out, scales if scale is None else scale


def _given(
    op: str, scale: torch.Tensor | None, out_dtype: torch.dtype
) -> tuple[torch.Tensor | None, str]:
    """The scale of all rows as a vector, and the name of the dtype."""
    dtype = arguments.is_dtype_of(op, "out_dtype", out_dtype, DTYPES)
    if scale is None:
        return None, dtype
    return arguments.one_number(op, "scale", scale), dtype


# -- records -----------------------------------------------------------------------------------
def _normalised(**options: object) -> Any:
    def arguments(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return (x, x.shape[-1:], weight), options

    return arguments


def _norm_shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    return (rows, columns), (columns,)


def _gate_shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    return (rows, columns), (rows, columns)


def _gated(**options: object) -> Any:
    return lambda gate, up: ((gate, up), options)


INFOS = (
    OpInfo(
        "rms_norm_quant", rms_norm_quant, decompositions.rms_norm_quant,
        (
            Form("plain", _norm_shapes, _normalised()),
            Form("int8", _norm_shapes, _normalised(out_dtype=torch.int8, eps=1e-5)),
        ),
        "RMSNorm in 8 bits, and the scales of its rows: `(out, scale)`",
        programs.rms_norm_quant, (0,), {"rms_norm_quant": by_rows((0,), "rr")},
        None, (BenchShape(16384, 4096, "Llama 3 8B"),),
    ),
    OpInfo(
        "silu_mul_quant", silu_mul_quant, decompositions.silu_mul_quant,
        (
            Form("plain", _gate_shapes, _gated()),
            Form("int8", _gate_shapes, _gated(out_dtype=torch.int8)),
        ),
        "`silu(gate) * up` in 8 bits, and the scales of its rows: `(out, scale)`",
        programs.silu_mul_quant, (0, 1), {"silu_mul_quant": by_rows((0, 1), "rr")},
        None, (BenchShape(16384, 14336, "Llama 3 8B"),),
    ),
)  # fmt: skip
register(INFOS)
