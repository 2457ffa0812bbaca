"""Owns the lowering of encoded dtypes: int4, uint4, float4_e2m1fn and, where asked, float8_e8m0fnu.

Before: buffers and expressions have these dtypes. After: none has. Tensors of 4-bit dtypes are
bytes of two elements; tiles hold one carrier an element, except those that a view names with
another dtype, which are bytes too; expressions compute on carriers and round after each operation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tileops.dtypes import DType
from tileops.ir import fold, walk
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.ir.stmt import AddressView, Alloc, Launch, View
from tileops.location import Location
from tileops.passes.context import Context
from tileops.passes.lower_packed_expressions import Expressions
from tileops.passes.lower_packed_statements import Statements
from tileops.passes.packed_types import Form, form_of, is_packed
from tileops.passes.pair_packed_stores import Pairing

PACKED = frozenset(("int4", "uint4", "float4_e2m1fn"))


def lower_packed(program: Program, context: Context) -> Program:
    """``program`` without encoded dtypes; itself where it has none.

    UnsupportedConstructError, located, for what has no such form: a store of half a byte, an
    atomic, a sum into a 4-bit tile.
    """
    # No GPU compiler has a scalar of this type.
    dtypes = PACKED | {"float8_e8m0fnu"} if context.target.is_gpu else PACKED
    if not any(str(dtype) in dtypes for dtype in _dtypes(program)):
        return program
    return _Lowering(program, dtypes).run()


def _dtypes(program: Program) -> Iterator[DType]:
    for param in program.tensors():
        yield param.buffer.dtype
    for buffer in program.workspaces:
        yield buffer.dtype
    for stmt in walk.walk(program.launches):
        if isinstance(stmt, (AddressView, Alloc, View)):
            yield stmt.buffer.dtype
        for expr in walk.exprs(stmt):
            yield from (e.dtype for e in walk.walk_expr(expr))


class _Lowering:
    """One program: forms of its buffers first, then launch by launch."""

    def __init__(self, program: Program, dtypes: frozenset[str]) -> None:
        self._program, self._dtypes = program, dtypes
        self._ids = walk.fresh_ids(program)
        self._globals: dict[int, Form] = {}
        self._even: set[int] = set()
        for buffer, loc in _global_buffers(program):
            self._add_global(buffer, loc)

    def _add_global(self, buffer: Buffer, loc: Location | None) -> None:
        if str(buffer.dtype) not in self._dtypes:
            return
        kind = "packed" if is_packed(buffer.dtype) else "coded"
        if kind == "packed":
            # A call's sizes come from bytes: what counts elements of whole ones is even.
            counts = (buffer.shape[-1], *(buffer.strides or ())[:-1])
            self._even.update(e.id for e in counts if isinstance(e, Var))
        self._globals[buffer.id] = form_of(buffer, kind, self._even, loc)

    def run(self) -> Program:
        p = self._program
        launches = tuple(self._launch(launch) for launch in p.launches)
        return dataclasses.replace(
            p,
            params=tuple(map(self._param, p.params)),
            workspaces=tuple(self._held(b) for b in p.workspaces),
            launches=launches,
        )

    def _param(self, param: TensorParam | ScalarParam) -> TensorParam | ScalarParam:
        if isinstance(param, ScalarParam):
            return param
        return dataclasses.replace(param, buffer=self._held(param.buffer))

    def _held(self, buffer: Buffer) -> Buffer:
        form = self._globals.get(buffer.id)
        return buffer if form is None else form.buffer

    def _launch(self, launch: Launch) -> Launch:
        forms = {**self._globals, **self._local_forms(launch)}
        roots = walk.view_roots(launch.body)
        packed = frozenset(n for n, form in forms.items() if form.kind == "packed")
        pairing = Pairing(packed, self._even, lambda b: roots.get(b.id, b).id, self._fresh)
        body = pairing.body(launch.body)
        values = Expressions(self._dtypes, forms, self._even, self._fresh)
        statements = Statements(forms, values, self._even, self._fresh, self._temporary)
        safe = []
        for buffer, value in launch.safe_values:
            new = values(fold.cast(value, buffer.dtype))
            form = forms.get(buffer.id)
            if form is not None:
                new, buffer = statements.code_of_all(form, new), form.buffer
            safe.append((buffer, new))
        return dataclasses.replace(launch, body=statements.body(body), safe_values=tuple(safe))

    def _local_forms(self, launch: Launch) -> dict[int, Form]:
        """The forms of tiles and views: bytes where one storage has names of several dtypes."""
        roots = walk.view_roots(launch.body)
        found: dict[int, tuple[Buffer, Location | None]] = {}
        dtypes: dict[int, set[DType]] = {}
        for stmt in walk.walk(launch.body):
            if isinstance(stmt, (AddressView, Alloc, View)):
                root = roots.get(stmt.buffer.id, stmt.buffer)
                dtypes.setdefault(root.id, {root.dtype}).add(stmt.buffer.dtype)
                found[stmt.buffer.id] = (stmt.buffer, stmt.loc)
        forms = {}
        for number, (buffer, loc) in found.items():
            if str(buffer.dtype) not in self._dtypes:
                continue
            root = roots.get(number, buffer)
            if not is_packed(buffer.dtype):
                kind = "plain" if buffer.scope == "var" else "coded"
            elif buffer.scope == "global" or len(dtypes[root.id]) > 1:
                kind = "packed"
            else:
                kind = "plain"
            forms[number] = form_of(buffer, kind, self._even, loc)
        return forms

    def _fresh(self, var: Var) -> Var:
        return Var(var.dtype, next(self._ids), var.name)

    def _temporary(self, name: str, shape: tuple[Expr, ...], dtype: DType) -> Buffer:
        return Buffer(next(self._ids), name, shape, dtype, "fragment")


def _global_buffers(program: Program) -> Iterator[tuple[Buffer, Location | None]]:
    for param in program.tensors():
        yield param.buffer, param.loc
    for buffer in program.workspaces:
        yield buffer, None
