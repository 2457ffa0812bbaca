"""Owns the structural rules of expressions: what is defined where, and which dtypes meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.ir.expr import (
    ARITHMETIC,
    BINARY_OPS,
    BITWISE,
    COMPARISONS,
    LOGICAL,
    MATH_FUNCTIONS,
    UNARY_OPS,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    HostAttr,
    Load,
    Region,
    Select,
    Unary,
    Var,
)
from tileops.ir.printer import print_body, print_expr
from tileops.ir.program import Program
from tileops.ir.stmt import Stmt
from tileops.ir.walk import children

_BOOL = DType("bool")
_SCOPES = ("global", "shared", "fragment", "local", "var")
_PREDICATES = ("isnan", "isinf", "isfinite")


class ExpressionVerifier:
    """The part of the verifier that knows names and expressions."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._vars: dict[int, Var] = {}
        self._buffers: dict[int, Buffer] = {}
        self._where: Stmt | None = None
        self._loops: list[str] = []

    # -- faults ------------------------------------------------------------------------------------
    def _fail(self, message: str) -> NoReturn:
        where = ""
        if self._where is not None:
            where = f"\n  in: {print_body((self._where,))[0]}"
            if self._where.loc is not None:
                where += f"\n  from {self._where.loc.file}:{self._where.loc.line}"
        raise InternalError(f"program {self._program.name} is malformed: {message}{where}")

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            self._fail(message)

    # -- definitions -------------------------------------------------------------------------------
    def _define_var(self, var: Var) -> None:
        self._require(var.id not in self._vars, f"variable {var.name}.{var.id} is defined twice")
        self._vars[var.id] = var

    def _define_buffer(self, buffer: Buffer) -> None:
        self._require(
            buffer.id not in self._buffers, f"buffer {buffer.name}.{buffer.id} is defined twice"
        )
        self._require(buffer.scope in _SCOPES, f"buffer {buffer.name} has scope {buffer.scope!r}")
        for extent in buffer.shape:
            self._integer(extent, f"an extent of {buffer.name}")
        if buffer.strides is not None:
            self._require(
                len(buffer.strides) == buffer.ndim,
                f"{buffer.name}: strides and shape differ in rank",
            )
            for stride in buffer.strides:
                self._integer(stride, f"a stride of {buffer.name}")
        if buffer.scope == "var":
            self._require(
                buffer.static_shape() == (1,), f"var buffer {buffer.name} has not shape (1,)"
            )
        self._buffers[buffer.id] = buffer

    def _use(self, buffer: Buffer) -> None:
        known = self._buffers.get(buffer.id)
        self._require(known is not None, f"buffer {buffer.name}.{buffer.id} is not defined here")
        self._require(
            known == buffer, f"buffer {buffer.name}.{buffer.id} differs from its definition"
        )

    # -- expressions -------------------------------------------------------------------------------
    def _integer(self, expr: Expr, what: str) -> None:
        self._expr(expr)
        self._require(
            expr.dtype in ("int32", "int64"), f"{what} has dtype {expr.dtype}, not int32 or int64"
        )

    def _typed(self, expr: Expr, dtype: DType, what: str) -> None:
        self._expr(expr)
        self._require(expr.dtype == dtype, f"{what} has dtype {expr.dtype}, expected {dtype}")

    def _expr(self, expr: Expr) -> None:
        for child in children(expr):
            self._expr(child)
        match expr:
            case Const(value=value, dtype=dtype):
                kinds = bool if dtype.is_bool else float if dtype.is_float else int
                ok = isinstance(value, kinds) and isinstance(value, bool) == dtype.is_bool
                self._require(ok, f"constant {value!r} of dtype {dtype}")
            case Var():
                known = self._vars.get(expr.id)
                self._require(
                    known is not None, f"variable {expr.name}.{expr.id} is not defined here"
                )
                self._require(
                    known == expr, f"variable {expr.name}.{expr.id} differs from its definition"
                )
            case Binary():
                self._binary(expr)
            case Unary():
                self._require(expr.op in UNARY_OPS, f"unknown operator {expr.op!r}")
                expected = _BOOL if expr.op == "not" else expr.a.dtype
                self._require(expr.dtype == expected, f"{print_expr(expr)} has dtype {expr.dtype}")
            case Call():
                self._call(expr)
            case Select(cond=cond, a=a, b=b):
                self._require(cond.dtype.is_bool, f"condition of {print_expr(expr)} is no bool")
                self._require(
                    a.dtype == b.dtype == expr.dtype,
                    f"branches of {print_expr(expr)} differ in dtype",
                )
            case Load(buffer=buffer, indices=indices):
                self._use(buffer)
                self._indices(buffer, indices)
                self._require(
                    expr.dtype == buffer.dtype, f"load of {buffer.name} has dtype {expr.dtype}"
                )
            case Cast() | HostAttr():
                pass
            case _:
                self._fail(f"unknown expression {type(expr).__name__}")

    def _binary(self, expr: Binary) -> None:
        op, a, b = expr.op, expr.a.dtype, expr.b.dtype
        self._require(op in BINARY_OPS, f"unknown operator {op!r}")
        self._require(a == b, f"operands of {print_expr(expr)} have dtypes {a} and {b}")
        if op in COMPARISONS or op in LOGICAL:
            self._require(expr.dtype.is_bool, f"{print_expr(expr)} is no bool")
        else:
            assert op in ARITHMETIC or op in BITWISE
            self._require(
                expr.dtype == a, f"{print_expr(expr)} has dtype {expr.dtype}, operands {a}"
            )
        if op in LOGICAL:
            self._require(a.is_bool, f"operands of {print_expr(expr)} are no bools")
        if op in BITWISE:
            self._require(not a.is_float, f"bit operation on floats: {print_expr(expr)}")
        if op == "div":
            self._require(a.is_float, f"true division of {a}: {print_expr(expr)}")
        if op == "ceildiv":
            self._require(a.is_integer, f"ceildiv of {a}: {print_expr(expr)}")

    def _call(self, expr: Call) -> None:
        self._require(expr.name in MATH_FUNCTIONS, f"unknown function {expr.name!r}")
        self._require(bool(expr.args), f"{expr.name} has no arguments")
        if expr.name in _PREDICATES:
            self._require(expr.dtype.is_bool, f"{expr.name} gives {expr.dtype}")
        elif expr.name == "reinterpret":
            self._require(
                expr.dtype.bits == expr.args[0].dtype.bits, "reinterpret changes the width"
            )

    def _indices(self, buffer: Buffer, indices: Iterable[Expr]) -> None:
        indices = tuple(indices)
        self._require(
            len(indices) == buffer.ndim,
            f"{buffer.name} has {buffer.ndim} dimensions, {len(indices)} indices",
        )
        for index in indices:
            self._require(
                index.dtype in ("int32", "int64"), f"index of {buffer.name} has dtype {index.dtype}"
            )

    def _region(self, region: Region) -> None:
        self._use(region.buffer)
        self._indices(region.buffer, region.starts)
        self._indices(region.buffer, region.extents)
        for e in (*region.starts, *region.extents):
            self._expr(e)
