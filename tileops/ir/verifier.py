"""The structural rules of the tile IR, which hold after the trace and after each pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from tileops.errors import InternalError
from tileops.ir import stmt as ir
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.printer import print_body
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.ir.walk import children, operand_names, walk


def verify(program: Program, made_by: str | None = None) -> None:
    """Check a program's structure; InternalError names the first fault and its statement.

    ``made_by`` is the pass that made the program: its statements must then say where they came
    from, and errors name it.
    """
    try:
        _Verifier(program).run()
        for stmt in walk(program.launches):
            if made_by is not None and stmt.origin is None:
                raise InternalError(
                    f"program {program.name}: a statement without an origin: {stmt.text()}"
                )
    except InternalError as error:
        if made_by is None:
            raise
        raise InternalError(f"after the pass {made_by}: {error}") from None


class _Verifier:
    """One walk of a program; ``_vars`` and ``_buffers`` are what is defined at the statement."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._vars: dict[int, Var] = {}
        self._buffers: dict[int, Buffer] = {}
        self._where: ir.Stmt | None = None
        self._loops: list[ir.Stmt] = []

    def run(self) -> None:
        """Verify the whole program."""
        p = self._program
        for size in p.sizes:
            self._require(
                size.kind in ("const", "dynamic"), f"size {size.var.name} has kind {size.kind!r}"
            )
            self._define(size.var)
        for param in p.params:
            if isinstance(param, ScalarParam):
                self._define(param.var)
        for buffer in (*(t.buffer for t in p.tensors()), *p.workspaces):
            self._require(
                buffer.scope == "global", f"{buffer.name} is a parameter of scope {buffer.scope}"
            )
            self._define(buffer)
        self._returns()
        self._body(p.host_asserts)
        self._body(p.launches)
        for extern in p.externs:
            self._where = None
            self._require(0 <= extern.after <= len(p.launches), f"{extern.name} is out of order")
            self._operand(
                (*extern.grid, *extern.buffers(), *(e for a in extern.args for e in a.exprs))
            )
            self._no_fault(extern.faults())

    def _returns(self) -> None:
        p = self._program
        self._require(len(set(p.returns)) == len(p.returns), "an output is returned twice")
        for index in p.returns:
            ok = 0 <= index < len(p.params) and getattr(p.params[index], "allocated", False)
            self._require(ok, f"return {index} is not an allocated parameter")
        for i, param in enumerate(p.params):
            if isinstance(param, TensorParam) and param.allocated:
                self._require(i in p.returns, f"allocated parameter {param.name} is not returned")

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

    def _no_fault(self, faults: Iterator[str]) -> None:
        for fault in faults:
            self._fail(fault)

    # -- definitions and uses ----------------------------------------------------------------------
    def _define(self, value: object) -> None:
        """Define a variable, a buffer, or each of several."""
        match value:
            case tuple():
                for item in value:
                    self._define(item)
            case Var():
                self._require(value.id not in self._vars, f"variable {value} is defined twice")
                self._vars[value.id] = value
            case Buffer():
                self._require(value.id not in self._buffers, f"buffer {value} is defined twice")
                for extent in (*value.shape, *(value.strides or ())):
                    self._operand(extent)
                self._no_fault(value.faults())
                self._buffers[value.id] = value

    def _operand(self, value: object) -> None:
        """Check an expression, region or buffer that is used, or each of several."""
        match value:
            case tuple():
                for item in value:
                    self._operand(item)
            case Var():
                self._require(value.id in self._vars, f"variable {value} is not defined here")
                self._require(
                    self._vars[value.id] == value, f"variable {value} differs from its definition"
                )
            case Expr():
                for child in children(value):
                    self._operand(child)
                if isinstance(value, Load):
                    self._operand(value.buffer)
                self._no_fault(value.faults())
            case Region():
                self._operand(value.buffer)
                self._no_fault(value.faults())
                self._operand((*value.starts, *value.extents))
            case Buffer():
                self._require(value.id in self._buffers, f"buffer {value} is not defined here")
                self._require(
                    self._buffers[value.id] == value, f"buffer {value} differs from its definition"
                )
            case ir.Placement():
                outer = dict(self._vars)
                self._define(value.vars)
                self._operand(value.indices)
                self._vars = outer

    # -- statements --------------------------------------------------------------------------------
    def _body(self, body: ir.Body, defined: object = ()) -> None:
        outer_vars, outer_buffers = dict(self._vars), dict(self._buffers)
        self._define(defined)
        for stmt in body:
            self._where = stmt
            self._stmt(stmt)
        self._vars, self._buffers = outer_vars, outer_buffers

    def _stmt(self, stmt: ir.Stmt) -> None:
        # The buffer of a safe value may be a view that the launch makes.
        inner = walk(stmt.body) if isinstance(stmt, ir.Launch) else ()
        views = {s.buffer.id for s in inner if isinstance(s, ir.View)}
        for name in operand_names(stmt):
            if name == "safe_values":
                safe: tuple[tuple[Buffer, Expr], ...] = getattr(stmt, name)
                self._operand(
                    tuple(x for b, v in safe for x in ((v,) if b.id in views else (b, v)))
                )
            elif name not in stmt.DEFINES:
                self._operand(getattr(stmt, name))
        self._no_fault(stmt.faults())
        self._dtypes(stmt)
        self._place(stmt)
        defined = tuple(getattr(stmt, name) for name in stmt.DEFINES)
        if not stmt.BODIES:
            self._define(defined)
            return
        is_loop = isinstance(stmt, (ir.For, ir.Parallel, ir.While))
        if is_loop:
            self._loops.append(stmt)
        for name in stmt.BODIES:
            self._body(getattr(stmt, name), defined)
        if is_loop:
            self._loops.pop()

    def _dtypes(self, stmt: ir.Stmt) -> None:
        for name, expected in stmt.DTYPES.items():
            value = getattr(stmt, name)
            dtype = getattr(stmt, expected).dtype if hasattr(stmt, expected) else expected
            if isinstance(value, Expr) and value.dtype != dtype:
                self._fail(f"`{name}` has dtype {value.dtype}, expected {dtype}")

    def _place(self, stmt: ir.Stmt) -> None:
        """Check that the statement may be where it is."""
        if isinstance(stmt, (ir.Break, ir.Continue)):
            ok = bool(self._loops) and not isinstance(self._loops[-1], ir.Parallel)
            self._require(ok, "break or continue outside a sequential loop")
        if stmt.is_tile_operation:
            nested = any(isinstance(loop, ir.Parallel) for loop in self._loops)
            self._require(not nested, "a tile operation inside a parallel nest")
