"""Owns matrix products: the call of the register-blocked kernels in csrc/cpu/gemm.h."""

from __future__ import annotations

from tileops.codegen.cpu.expressions import region_start, value
from tileops.codegen.cpu.scalar_types import is_narrow_float, storage
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir.expr import Region
from tileops.ir.stmt import Gemm


def emit_gemm(state: LaunchState, stmt: Gemm) -> None:
    """``c (+)= op(a) @ op(b)`` on the last two dimensions."""
    a, _, c = (_matrix(operand) for operand in (stmt.a, stmt.b, stmt.c))
    depth = a[0] if stmt.transpose_a else a[1]
    flags = f"{_flag(stmt.transpose_a)}, {_flag(stmt.transpose_b)}"
    kind = storage(stmt.c.dtype)
    rounding = is_narrow_float(stmt.c.dtype)
    operands = ", ".join(
        f"{region_start(state, r)}, {state.place(r.buffer).strides[-2]}"
        for r in (stmt.a, stmt.b, stmt.c)
    )
    space = "" if rounding else f", {state.gemm_space}"
    name = "gemm_rounding" if rounding else "gemm"
    state.writer.line(
        f"{name}<{kind}, {c[0]}, {c[1]}, {depth}, {flags}>"
        f"({operands}, {value(state, stmt.clear)}{space});"
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _matrix(region: Region) -> tuple[int, int]:
    extents = region.static_extents()
    if extents is None or len(extents) < 2:
        raise InternalError("gemm operands are matrices of static extents")
    return extents[-2], extents[-1]
