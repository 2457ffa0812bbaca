"""Matrix products in groups of different sizes, as layers of experts have them, with gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ops import arguments, batching, choosing, decompositions
from tileops.ops.autocasting import lowered
from tileops.ops.info import BenchShape, Form, OpInfo, register
from tileops.ops.programs import grouped as programs
from tileops.ops.programs.linear import tile_of


def grouped_mm(
    mat_a: torch.Tensor, mat_b: torch.Tensor, *, offs: torch.Tensor | None = None,
    bias: None = None, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """A matrix product for each of G groups, as ``torch.nn.functional.grouped_mm``.

    Summed in float32 (float64 for float64) and rounded once. The groups divide a dimension of
    matrices without a group dimension; group g ends before ``offs[g]`` and begins where the one
    before ends.

    mat_a, mat_b      the result
    (M, K), (G, K, N) (M, N): each row of ``mat_a`` by the matrix of its group
    (G, M, K), (K, N) (M, N): each column of ``mat_b`` by the matrix of its group
    (M, K), (K, N)    (G, M, N): group g sums over its part of K
    (G, M, K), (G, K, N) (G, M, N): ``torch.bmm``, without ``offs``

    mat_a:     float16, bfloat16, float32 or float64. A transposed tensor is read as it is, other
               layouts are copied.
    mat_b:     of the dtype of ``mat_a``, likewise.
    offs:      (G,), int32: the ends of the groups, which do not fall; a group may be empty. They
               are read on the device: an end past the dimension counts as its end. What is behind
               the last group gives 0, or is not summed.
    bias:      must be None.
    out_dtype: None for that of ``mat_a``, or float32.

    The gradients are such products, and have gradients themselves. DTensors are refused: no rule
    tells how groups are divided. Under autocast everything is computed in its dtype.
    ArgumentError (ArgumentTypeError) names what does not fit.
    """
    op = "grouped_mm"
    for name, tensor in (("mat_a", mat_a), ("mat_b", mat_b)):
        arguments.is_float(op, name, tensor)
    mat_a, mat_b = lowered(mat_a, mat_b)
    _check(op, mat_a, mat_b, offs)
    if bias is not None:
        raise ArgumentError(f"{op}: bias: expected None, got {bias!r}")
    if out_dtype not in (None, mat_a.dtype, torch.float32) or (
        out_dtype == torch.float32 and mat_a.dtype == torch.float64
    ):
        raise ArgumentError(
            f"{op}: out_dtype: expected None, {mat_a.dtype} or torch.float32, got {out_dtype}"
        )
    is_wide = out_dtype == torch.float32 != mat_a.dtype
    if offs is None or choosing.decomposes(op, mat_a.shape[-1], (mat_a, mat_b)):
        return decompositions.grouped_mm(mat_a, mat_b, offs=offs, out_dtype=out_dtype)
    if mat_a.dim() == 3:  # the groups are rows of the transposed product
        mat_a, mat_b = mat_b.mT, mat_a.mT
        return _product(programs.grouped_mm, mat_a, mat_b, offs, is_wide).mT
    program = programs.grouped_mm if mat_b.dim() == 3 else programs.grouped_mm_terms
    return _product(program, mat_a, mat_b, offs, is_wide)


def _product(
    program: Any, a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor, is_wide: bool
) -> torch.Tensor:
    a_turned, b_turned = _is_turned(a), _is_turned(b)
    out: torch.Tensor = program(
        a.mT if a_turned else a, b.mT if b_turned else b, ends,
        a_turned=a_turned, b_turned=b_turned, is_wide=is_wide,
    )  # fmt: skip
    return out


def _is_turned(matrix: torch.Tensor) -> bool:
    """Whether the transposed tensor is in the order of its memory, and this one is not."""
    return matrix.mT.is_contiguous() and not matrix.is_contiguous()


def _check(op: str, a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None) -> None:
    for name, x in (("mat_a", a), ("mat_b", b)):
        if x.dim() not in (2, 3):
            raise ArgumentError(f"{op}: {name}: expected two or three dimensions, got {x.dim()}")
    arguments.has_dtype(op, "mat_b", b, "mat_a", a)
    if b.shape[-2] != a.shape[-1]:
        raise ArgumentError(
            f"{op}: mat_b: expected {a.shape[-1]} rows, as many as mat_a has columns, got "
            f"{b.shape[-2]}"
        )
    grouped = [x for x in (a, b) if x.dim() == 3]
    if len(grouped) == 2:
        if offs is not None:
            raise ArgumentError(f"{op}: offs: expected None for two tensors of three dimensions")
        if a.shape[0] != b.shape[0]:
            raise ArgumentError(f"{op}: mat_b: expected {a.shape[0]} groups, got {b.shape[0]}")
        return
    if not isinstance(offs, torch.Tensor) or offs.dtype != torch.int32:
        got = offs.dtype if isinstance(offs, torch.Tensor) else type(offs).__name__
        raise ArgumentTypeError(f"{op}: offs: expected ends of groups of int32, got {got}")
    if offs.dim() != 1 or (grouped and offs.shape[0] != grouped[0].shape[0]):
        wanted = f"({grouped[0].shape[0]},)" if grouped else "(groups,)"
        raise ArgumentError(f"{op}: offs: expected the shape {wanted}, got {tuple(offs.shape)}")


# -- gradients ---------------------------------------------------------------------------------
def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.a_turned = keyword_only_inputs["a_turned"]
    ctx.b_turned = keyword_only_inputs["b_turned"]


def _operands(ctx: Any, d_out: Any) -> tuple[Any, ...]:
    """The operands as they are multiplied, the ends, and the gradient of the result."""
    A, B, ends = ctx.saved_tensors
    a, b = A.mT if ctx.a_turned else A, B.mT if ctx.b_turned else B
    return a, b, ends, d_out.to(A.dtype)


def _gradients(ctx: Any, d_a: Any, d_b: Any) -> tuple[Any, ...]:
    """The gradients of the tensors as they were given."""
    d_a = d_a.mT if d_a is not None and ctx.a_turned else d_a
    d_b = d_b.mT if d_b is not None and ctx.b_turned else d_b
    return d_a, d_b, None, None, None, None


def _backward(ctx: Any, d_out: Any) -> tuple[Any, ...]:
    a, b, ends, d_out = _operands(ctx, d_out)
    wants = ctx.needs_input_grad
    d_a = _product(programs.grouped_mm, d_out, b.mT, ends, False) if wants[0] else None
    d_b = _product(programs.grouped_mm_terms, a.mT, d_out, ends, False) if wants[1] else None
    return _gradients(ctx, d_a, d_b)


def _backward_of_terms(ctx: Any, d_out: Any) -> tuple[Any, ...]:
    a, b, ends, d_out = _operands(ctx, d_out)
    wants = ctx.needs_input_grad
    d_a = _product(programs.grouped_mm, b, d_out.mT, ends, False).mT if wants[0] else None
    d_b = _product(programs.grouped_mm, a.mT, d_out, ends, False) if wants[1] else None
    return _gradients(ctx, d_a, d_b)


programs.grouped_mm.register_autograd(_backward, setup_context=_save)
programs.grouped_mm_terms.register_autograd(_backward_of_terms, setup_context=_save)
programs.grouped_mm_terms.register_vmap(batching.by_rows(programs.grouped_mm_terms, ()))


# -- records -----------------------------------------------------------------------------------
def _flops(A: Any, B: Any, ends: Any, *, b_turned: bool = False, **options: Any) -> int:
    columns = B[-2 if b_turned else -1]
    return int(2 * math.prod(A) * columns)


def config(call: Any) -> tuple[dict[str, int], str]:
    """The tile of a call of a program, and the reason."""
    A = call.arguments[0]
    sums_parts = call.name.endswith("_terms")
    tile = tile_of(8 * A.element_size(), False, sums_parts)
    return tile._asdict(), f"products of {tuple(A.shape)} {A.dtype} in groups"


def _sizes(rows: int) -> tuple[int, int]:
    """Groups and columns: the experts of a model where there are as many rows as models have."""
    return (3, 13) if rows < 2048 else (128, 1536)


def _by_rows(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    groups, features = _sizes(rows)
    return (rows, columns), (groups, columns, features)


def _by_turned_rows(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    groups, features = _sizes(rows)
    return (rows, columns), (groups, features, columns)


def _by_columns(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    groups, features = _sizes(rows)
    return (groups, features, columns), (columns, rows)


def _by_terms(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    return (columns, rows), (rows, _sizes(rows)[1])


def _grouped(dim: int, turned: bool = False) -> Any:
    """The ends of groups that divide dimension ``dim`` of a matrix; the second one is empty."""

    def arguments(a: torch.Tensor, b: torch.Tensor) -> Any:
        divided = (a if a.dim() == 2 else b).shape[dim]
        groups = a.shape[0] if a.dim() == 3 else b.shape[0] if b.dim() == 3 else 3
        ends = [(g + (g != 1)) * divided // groups for g in range(groups)]
        offs = torch.tensor(ends, dtype=torch.int32, device=a.device)
        return (a, b.mT if turned else b), {"offs": offs}

    return arguments


INFOS = (
    OpInfo(
        "grouped_mm", grouped_mm, decompositions.grouped_mm,
        (
            Form("rows", _by_rows, _grouped(0)),
            Form("turned", _by_turned_rows, _grouped(0, turned=True)),
            Form("columns", _by_columns, _grouped(1)),
            Form("terms", _by_terms, _grouped(1)),
        ),
        "a matrix product for each group of rows, columns or terms, as "
        "`torch.nn.functional.grouped_mm`",
        programs.grouped_mm, (), {}, lambda inputs, outputs: inputs,
        (BenchShape(16384, 2048, "Qwen3 30B-A3B"),),
        flops={"grouped_mm": _flops, "grouped_mm_terms": _flops}, lowers=True,
    ),
)  # fmt: skip
register(INFOS)
