"""Products of quantised operands: of 8-bit floats with scales, and by packed 4-bit weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import arguments, choosing, decompositions
from tileops.ops.autocasting import lowered
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import quantised_products as programs
from tileops.ops.sharding import int4_linear_rule, scaled_mm_rule

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
WIDE = (torch.bfloat16, torch.float16, torch.float32)


def scaled_mm(
    input: torch.Tensor, mat2: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    bias: torch.Tensor | None = None, scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """``(input @ mat2) * scale_a * scale_b + bias``: the arguments of ``torch._scaled_mm``.

    Summed in float32 and rounded once, at the end. Tensor cores sum 8-bit floats with fewer bits:
    sums of 128 terms are added up in float32. ``use_fast_accum=True`` leaves all terms to them.

    input:            (M, K), float8_e4m3fn or float8_e5m2.
    mat2:             (K, N), of either of these dtypes. One that is contiguous as (N, K), whose
                      transpose it is, is read in place; another one is copied.
    scale_a, scale_b: float32, both of one element, or (M, 1) and (1, N): a scale for each row of
                      ``input`` and each column of ``mat2``.
    bias:             (N,), bfloat16, float16 or float32; None for none.
    scale_result:     a float32 tensor of one element by which a result of 8 bits is multiplied.
    out_dtype:        bfloat16, float16, float32 or one of the 8-bit floats, where what is too large
                      becomes the largest number; None for the dtype of ``input``.

    Sizes are any: torch wants multiples of 16. Returns (M, N). There are no gradients. Scales of
    blocks are refused. ArgumentError (ArgumentTypeError) names what does not fit.
    """
    op = "scaled_mm"
    out_dtype = _check_scaled_mm(op, input, mat2, bias, scale_result, out_dtype)
    by_row = _has_scales_of_rows(op, input, mat2, scale_a, scale_b)
    if choosing.decomposes(op, input.shape[-1], (scale_a, scale_b, bias, scale_result)):
        return decompositions.scaled_mm(
            input, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum
        )
    few_rows = not torch.compiler.is_exporting() and input.shape[0] <= programs.FEW_ROWS
    out: torch.Tensor = programs.scaled_mm(
        input, mat2.t(), scale_a.reshape(-1), scale_b.reshape(-1), bias,
        None if scale_result is None else scale_result.reshape(1),
        by_row=by_row, dtype=arguments.word(out_dtype), fast=bool(use_fast_accum),
        few_rows=few_rows,
    )  # fmt: skip
    return out


def _check_scaled_mm(
    op: str, input: torch.Tensor, mat2: torch.Tensor, bias: torch.Tensor | None,
    scale_result: torch.Tensor | None, out_dtype: torch.dtype | None,
) -> torch.dtype:  # fmt: skip
    """The dtype of the result."""
    for name, matrix in (("input", input), ("mat2", mat2)):
        arguments.is_of(op, name, matrix, FLOAT8)
        if matrix.dim() != 2:
            raise ArgumentError(f"{op}: {name}: expected a matrix, got {tuple(matrix.shape)}")
    if mat2.shape[0] != input.shape[1]:
        raise ArgumentError(f"{op}: mat2: expected ({input.shape[1]}, N), got {tuple(mat2.shape)}")
    if bias is not None:
        arguments.is_of(op, "bias", bias, WIDE)
        arguments.has_shape(op, "bias", bias, mat2.shape[1:])
    out_dtype = input.dtype if out_dtype is None else out_dtype
    arguments.is_dtype_of(op, "out_dtype", out_dtype, (*WIDE, *FLOAT8))
    if scale_result is not None:
        arguments.one_number(op, "scale_result", scale_result)
        if out_dtype not in FLOAT8:
            raise ArgumentError(
                f"{op}: scale_result: expected None for a result of {arguments.word(out_dtype)}"
            )
    return out_dtype


def _has_scales_of_rows(
    op: str, input: torch.Tensor, mat2: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> bool:
    """Whether the scales are those of rows and columns; raise unless they fit."""
    rows, columns = input.shape[0], mat2.shape[1]
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        arguments.is_of(op, name, scale, (torch.float32,))
    if scale_a.numel() == 1 and scale_b.numel() == 1:
        return False
    for name, scale, shape in (
        ("scale_a", scale_a, (rows, 1)), ("scale_b", scale_b, (1, columns)),
    ):  # fmt: skip
        if tuple(scale.shape) != shape:
            raise ArgumentError(
                f"{op}: {name}: expected the shape {shape}, or one element as in the other scale, "
                f"got {tuple(scale.shape)}"
            )
    return True


# -- 4-bit weights -----------------------------------------------------------------------------
def int4_linear(
    input: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor,
    zeros: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, group_size: int,
) -> torch.Tensor:  # fmt: skip
    """``input @ w^T + bias`` for ``w = (codes - zeros) * scales``, of packed 4-bit ``codes``.

    A byte of ``weight`` has two codes of a row, 0 to 15: that of an even column is in the low half,
    that of the next column in the high half. ``pack_int4`` makes it. ``w`` is computed in float32
    (float64 for float64) and rounded to the dtype of ``input``. The products are summed in float32
    (float64) and rounded once, at the end.

    input:      (..., in_features), float16, bfloat16, float32 or float64.
    weight:     (out_features, in_features / 2, rounded up), uint8.
    scales:     (out_features, in_features / group_size, rounded up), float16, bfloat16, float32 or
                float64: one for each ``group_size`` columns; the last group may be shorter.
    zeros:      the code of 0 in each group, a number of any size, of the shape and the dtype of
                ``scales``; None for 8.
    bias:       (out_features,), of the dtype of ``input``; None for none.
    group_size: an even number.

    Returns (..., out_features). Autocast lowers ``input`` and ``bias``. There are no gradients.
    ArgumentError (ArgumentTypeError) names what does not fit.
    """
    op = "int4_linear"
    arguments.is_float(op, "input", input)
    if bias is not None:
        arguments.is_float(op, "bias", bias)
    input, bias = lowered(input, bias)
    _check_int4_linear(op, input, weight, scales, zeros, bias, group_size)
    if choosing.decomposes(op, input.shape[-1], (input, scales, zeros, bias)):
        return decompositions.int4_linear(input, weight, scales, zeros, bias, group_size=group_size)
    rows = math.prod(input.shape[:-1])
    if input.shape[-1] % 2:  # the last byte has one code
        input = torch.nn.functional.pad(input, (0, 1))
    out: torch.Tensor = programs.int4_linear(
        input, weight, scales, zeros, bias, group=group_size,
        few_rows=not torch.compiler.is_exporting() and rows <= programs.FEW_ROWS_OF_INT4,
    )  # fmt: skip
    return out


def _check_int4_linear(
    op: str, input: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor,
    zeros: torch.Tensor | None, bias: torch.Tensor | None, group_size: int,
) -> None:  # fmt: skip
    if input.dim() == 0:
        raise ArgumentError(f"{op}: input: expected at least one dimension, got a number")
    if isinstance(group_size, bool) or not isinstance(group_size, int):
        kind = type(group_size).__name__
        raise ArgumentTypeError(f"{op}: group_size: expected an integer, got {kind}")
    if group_size <= 0 or group_size % 2:
        raise ArgumentError(f"{op}: group_size: expected a positive even number, got {group_size}")
    arguments.is_of(op, "weight", weight, (torch.uint8,))
    columns = input.shape[-1]
    if weight.dim() != 2 or weight.shape[1] != (columns + 1) // 2:
        raise ArgumentError(
            f"{op}: weight: expected (out_features, {(columns + 1) // 2}), two codes of "
            f"{columns} in a byte, got {tuple(weight.shape)}"
        )
    arguments.is_float(op, "scales", scales)
    groups = (columns + group_size - 1) // group_size
    arguments.has_shape(op, "scales", scales, (weight.shape[0], groups))
    if zeros is not None:
        arguments.is_like(op, "zeros", zeros, "scales", scales)
    if bias is not None:
        arguments.has_shape(op, "bias", bias, weight.shape[:1])
        arguments.has_dtype(op, "bias", bias, "input", input)


def pack_int4(codes: torch.Tensor) -> torch.Tensor:
    """The ``weight`` of ``int4_linear`` of (out_features, in_features) codes from 0 to 15.

    codes: integers of any dtype; only their lowest four bits count. The high half of the last byte
           of a row is 0 if ``in_features`` is odd.

    Returns (..., in_features / 2, rounded up), uint8.
    """
    if not isinstance(codes, torch.Tensor) or codes.is_floating_point() or codes.is_complex():
        got = arguments.word(codes.dtype) if isinstance(codes, torch.Tensor) else repr(codes)
        raise ArgumentTypeError(f"pack_int4: codes: expected a tensor of integers, got {got}")
    if codes.dim() == 0:
        raise ArgumentError("pack_int4: codes: expected at least one dimension, got a number")
    low = (codes & 15).to(torch.uint8)
    if codes.shape[-1] % 2:
        low = torch.nn.functional.pad(low, (0, 1))
    return low[..., ::2] | low[..., 1::2] << 4


# -- records -----------------------------------------------------------------------------------
def config(call: Any) -> tuple[dict[str, int], str]:
    """The tile of a call of a program, and the reason."""
    X = call.arguments[0]
    few_rows = call.options.get("few_rows", False)
    if call.name == "scaled_mm":
        tile = programs.tile_of_float8(few_rows)
    else:
        tile = programs.tile_of_int4(8 * X.element_size(), few_rows)
    return tile._asdict(), f"a product of {tuple(X.shape)} {X.dtype}"


def _scaled_mm_flops(A: Sequence[int], B: Sequence[int], *others: Any, **options: Any) -> int:
    return 2 * math.prod(A) * B[0]


def _int4_linear_flops(X: Sequence[int], W: Sequence[int], *others: Any, **options: Any) -> int:
    return 2 * math.prod(X) * W[0]


def _features(rows: int) -> int:
    """Columns of a result, of a model's size where there are as many rows as models have."""
    return 13 if rows < 2048 else 14336


def _float8_shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    return (rows, columns), (_features(rows), columns), (1,), (1,)


def _scaled(a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> Any:
    return (a, b.t(), *(s.abs() for s in scales)), {"out_dtype": torch.bfloat16}


_GROUP = 128


def _int4_shapes(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    features, groups = _features(rows), -(-columns // _GROUP)
    return (rows, columns), (features, -(-columns // 2)), (features, groups), (features, groups)


def _packed(*tensors: torch.Tensor) -> Any:
    return tensors, {"group_size": _GROUP}


INFOS = (
    OpInfo(
        "scaled_mm", scaled_mm, decompositions.scaled_mm,
        (
            Form(
                "plain", _float8_shapes, _scaled,
                (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float32, torch.float32),
            ),
        ),
        "a product of 8-bit floats with scales: the arguments of `torch._scaled_mm`",
        programs.scaled_mm, (), {"scaled_mm": scaled_mm_rule},
        None, (BenchShape(16384, 4096, "Llama 3 8B"),), flops={"scaled_mm": _scaled_mm_flops},
    ),
    OpInfo(
        "int4_linear", int4_linear, decompositions.int4_linear,
        (Form("plain", _int4_shapes, _packed, (None, torch.uint8, torch.float32, torch.float32)),),
        "a linear layer of packed 4-bit weights with scales of groups",
        programs.int4_linear, (0,), {"int4_linear": int4_linear_rule},
        None, (BenchShape(16, 4096, "Llama 3 8B"),),
        flops={"int4_linear": _int4_linear_flops}, lowers=True,
    ),
)  # fmt: skip
register(INFOS)
