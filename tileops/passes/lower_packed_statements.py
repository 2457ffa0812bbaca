"""Owns statements on encoded buffers: copies become elementwise nests, operands become tiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Set

from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir import fold, walk
from tileops.ir.expr import Buffer, Call, Expr, Load, Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import (
    AddressView,
    Alloc,
    Atomic,
    Bind,
    Body,
    Copy,
    Fill,
    Gemm,
    Im2col,
    Parallel,
    Print,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
    View,
)
from tileops.passes.encode_values import encode
from tileops.passes.lower_packed_expressions import Expressions
from tileops.passes.packed_types import BYTE, CARRIERS, PAIR, Form, half, pair, parity
from tileops.passes.pair_packed_stores import refusal

_INT32 = DType("int32")
# Reductions and scans whose result is one of the source's values, or of its bits.
_SELECTING = ("max", "min", "bitand", "bitor", "bitxor")


class Statements:
    """Rewrites the statements of one launch, whose stores to packed buffers are paired."""

    def __init__(
        self,
        forms: Mapping[int, Form],
        values: Expressions,
        even: Set[int],
        fresh: Callable[[Var], Var],
        temporary: Callable[[str, tuple[Expr, ...], DType], Buffer],
    ) -> None:
        self._forms, self._values, self._even = forms, values, even
        self._fresh, self._temporary = fresh, temporary

    def body(self, body: Body) -> Body:
        """A statement list over ordinary dtypes."""
        return tuple(new for stmt in body for new in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> tuple[Stmt, ...]:
        match stmt:
            case Alloc():
                init = None if stmt.init is None else self._values(stmt.init)
                return (dataclasses.replace(stmt, buffer=self._held(stmt.buffer), init=init),)
            case View():
                buffer, source = self._held(stmt.buffer), self._held(stmt.source)
                return (dataclasses.replace(stmt, buffer=buffer, source=source),)
            case AddressView(address=address):
                held = self._held(stmt.buffer)
                return (dataclasses.replace(stmt, buffer=held, address=self._values(address)),)
            case Bind(var=var, value=value):
                binds: list[Stmt] = []
                with self._values.bound(binds, stmt):
                    new = self._values(value)
                return (*binds, dataclasses.replace(stmt, var=self._var(var), value=new))
            case Store():
                return self._store(stmt)
            case Copy():
                return (self._copy(stmt),)
            case Fill():
                return (self._fill(stmt),)
            case _ if walk.regions(stmt):
                return self._tile(stmt)
            case _:
                new_stmt = walk.map_stmt_exprs(stmt, self._values)
                bodies = tuple(map(self.body, walk.sub_bodies(stmt)))
                return (walk.with_bodies(new_stmt, bodies),)

    def _held(self, buffer: Buffer) -> Buffer:
        form = self._forms.get(buffer.id)
        return buffer if form is None else form.buffer

    def _var(self, var: Var) -> Var:
        if not self._values.is_encoded(var.dtype):
            return var
        return dataclasses.replace(var, dtype=CARRIERS[str(var.dtype)])

    def _kind(self, buffer: Buffer) -> str | None:
        form = self._forms.get(buffer.id)
        return None if form is None else form.kind

    # -- elements ----------------------------------------------------------------------------------
    def _store(self, stmt: Store) -> tuple[Stmt, ...]:
        kind = self._kind(stmt.buffer)
        binds: list[Stmt] = []
        with self._values.bound(binds, stmt):
            indices = tuple(map(self._values, stmt.indices))
            if kind == "packed":
                indices = (*indices[:-1], half(indices[-1], self._even))
                value = self._pair(stmt)
            else:
                value = self._values(stmt.value)
                if kind == "coded":
                    value = encode(self._values.once("value", value), stmt.buffer.dtype)
        buffer = self._held(stmt.buffer)
        return (*binds, dataclasses.replace(stmt, buffer=buffer, indices=indices, value=value))

    def _pair(self, stmt: Store) -> Expr:
        """The byte of a store of two neighbours."""
        if not (isinstance(stmt.value, Call) and stmt.value.name == PAIR):
            raise refusal(stmt, "no loop or neighbouring store that holds both")
        low, high = (self._values.once("value", self._values(a)) for a in stmt.value.args)
        return _byte(low, high, stmt.buffer.dtype)

    def code_of_all(self, form: Form, value: Expr) -> Expr:
        """What a byte of a buffer holds where all its elements are ``value``."""
        if form.kind == "packed":
            return _byte(value, value, form.logical.dtype)
        return encode(value, form.logical.dtype)

    # -- copies and fills --------------------------------------------------------------------------
    def _fill(self, stmt: Fill) -> Stmt:
        form = self._forms.get(stmt.dst.buffer.id)
        value = self._values(stmt.value)
        if form is None or form.kind == "plain":
            return dataclasses.replace(stmt, dst=self._region(stmt.dst), value=value)
        if form.kind == "packed" and not self._is_whole_bytes(stmt.dst):
            raise _odd_region("T.fill", stmt.dst, stmt)
        dst = self._bytes(stmt.dst)
        return dataclasses.replace(stmt, dst=dst, value=self.code_of_all(form, value))

    def _copy(self, stmt: Copy) -> Stmt:
        src, dst = self._kind(stmt.src.buffer), self._kind(stmt.dst.buffer)
        same = stmt.src.dtype == stmt.dst.dtype
        if src in (None, "plain") and (dst is None or (dst == "plain" and same)):
            return dataclasses.replace(stmt, src=self._region(stmt.src), dst=self._region(stmt.dst))
        if src == dst and same and self._are_bytes(stmt):
            return dataclasses.replace(stmt, src=self._bytes(stmt.src), dst=self._bytes(stmt.dst))
        return self._nest(stmt)

    def _are_bytes(self, stmt: Copy) -> bool:
        if self._kind(stmt.src.buffer) == "coded":
            return True
        return self._is_whole_bytes(stmt.src) and self._is_whole_bytes(stmt.dst)

    def _is_whole_bytes(self, region: Region) -> bool:
        ends = (region.starts[-1], region.extents[-1])
        return all(parity(e, self._even) == 0 for e in ends)

    def _region(self, region: Region) -> Region:
        starts = tuple(map(self._values, region.starts))
        extents = tuple(map(self._values, region.extents))
        return Region(self._held(region.buffer), starts, extents)

    def _bytes(self, region: Region) -> Region:
        """The bytes of a region that holds whole ones."""
        new = self._region(region)
        if self._kind(region.buffer) == "coded":
            return new
        starts = (*new.starts[:-1], half(new.starts[-1], self._even))
        return Region(new.buffer, starts, (*new.extents[:-1], half(new.extents[-1], self._even)))

    def _nest(self, stmt: Copy) -> Stmt:
        """A copy element by element; where two share a byte of the target, two a time."""
        src_dims, dst_dims = stmt.src.walked(), stmt.dst.walked()
        packed = self._kind(stmt.dst.buffer) == "packed"
        if len(src_dims) != len(dst_dims):
            raise UnsupportedConstructError(
                "a copy whose sides differ in rank after dropping extents of 1", location=stmt.loc
            )
        last = len(stmt.dst.extents) - 1
        if packed and not (dst_dims[-1] == last and self._is_whole_bytes(stmt.dst)):
            raise _odd_region("T.copy", stmt.dst, stmt)
        extents = [
            b if const_value(a) is None else a
            for a, b in zip(
                (stmt.src.extents[d] for d in src_dims),
                (stmt.dst.extents[d] for d in dst_dims),
                strict=True,
            )
        ]
        points: list[Expr] = [self._fresh(Var(_INT32, 0, f"i{n}")) for n in range(len(dst_dims))]
        names = tuple(p for p in points if isinstance(p, Var))
        if packed:
            extents[-1] = half(extents[-1], self._even)
            points[-1] = fold.mul(points[-1], fold.const(2))

        def element(shift: int) -> Expr:
            at = [*points[:-1], fold.add(points[-1], fold.const(shift))]
            load = Load(
                stmt.src.dtype, stmt.src.buffer, fold.region_indices(stmt.src, src_dims, at)
            )
            return fold.cast(load, stmt.dst.dtype)

        value = pair(element(0), element(1)) if packed else element(0)
        place = fold.region_indices(stmt.dst, dst_dims, points)
        store = self._store(Store(stmt.dst.buffer, place, value, **stmt.provenance))
        ends = tuple(map(self._values, extents))
        return Parallel(names, ends, store, **stmt.provenance)

    # -- other tile operations ---------------------------------------------------------------------
    def _tile(self, stmt: Stmt) -> tuple[Stmt, ...]:
        """A tile operation; operands that are bytes are unpacked into tiles before."""
        self._check_tile(stmt)
        written = {id(r) for r in _targets(stmt)}
        before: list[Stmt] = []
        after: list[Stmt] = []
        changes: dict[str, object] = {}
        for field in dataclasses.fields(stmt):
            value = getattr(stmt, field.name)
            if isinstance(value, Region):
                changes[field.name] = self._operand(
                    value, stmt, before, after if id(value) in written else None
                )
            elif isinstance(stmt, Print) and field.name == "args":
                changes[field.name] = tuple(
                    self._operand(v, stmt, before, None)
                    if isinstance(v, Region)
                    else self._values(v)
                    for v in stmt.args
                )
        new = dataclasses.replace(stmt, **changes)  # type: ignore[arg-type]
        if not isinstance(stmt, Print):
            new = self._scalars(stmt, new)
        return (*before, new, *after)

    def _scalars(self, old: Stmt, new: Stmt) -> Stmt:
        match old, new:
            case Gemm(), Gemm():
                return dataclasses.replace(new, clear=self._values(old.clear))
            case Im2col(), Im2col():
                steps = self._values(old.row_step), self._values(old.col_step)
                return dataclasses.replace(new, row_step=steps[0], col_step=steps[1])
            case Atomic(value=value), Atomic() if isinstance(value, Expr):
                return dataclasses.replace(new, value=self._values(value))
            case _:
                return new

    def _operand(
        self, region: Region, stmt: Stmt, before: list[Stmt], after: list[Stmt] | None
    ) -> Region:
        """The region itself, or a tile that holds its elements; ``after`` writes it back."""
        if self._kind(region.buffer) in (None, "plain"):
            return self._region(region)
        if region.static_extents() is None:
            raise UnsupportedConstructError(
                f"a tile operation on `{region.buffer.name}` of {region.dtype} whose extents are "
                "not constants",
                location=stmt.loc,
            )
        carrier = CARRIERS[str(region.dtype)]
        tile = self._temporary(region.buffer.name, region.extents, carrier)
        before.append(Alloc(tile, **stmt.provenance))
        zeros = tuple(fold.const(0) for _ in region.extents)
        whole = Region(tile, zeros, region.extents)
        if after is None:
            before.append(self._nest(Copy(region, whole, **stmt.provenance)))
        else:
            after.append(self._nest(Copy(whole, region, **stmt.provenance)))
        return whole

    def _check_tile(self, stmt: Stmt) -> None:
        if isinstance(stmt, Im2col) and self._kind(stmt.image) is not None:
            raise self._unsupported("T.im2col", stmt.image.dtype, stmt)
        for region in _targets(stmt):
            dtype = region.dtype
            if not self._values.is_encoded(dtype):
                continue
            if isinstance(stmt, (Atomic, Gemm)):
                name = "an atomic" if isinstance(stmt, Atomic) else "T.gemm"
                raise self._unsupported(f"{name} into", dtype, stmt)
            if isinstance(stmt, (Reduce, Scan)) and (
                stmt.kind not in _SELECTING or not getattr(stmt, "clear", True)
            ):
                raise self._unsupported(f"a running {stmt.kind} in", dtype, stmt)

    def _unsupported(self, what: str, dtype: DType, stmt: Stmt) -> UnsupportedConstructError:
        return UnsupportedConstructError(
            f"{what} {dtype}; use a wider tile and T.copy it", location=stmt.loc
        )


def _targets(stmt: Stmt) -> tuple[Region, ...]:
    match stmt:
        case Gemm(c=c):
            return (c,)
        case Reduce(dst=d) | Scan(dst=d) | Transpose(dst=d) | Im2col(dst=d) | Atomic(dst=d):
            return (d,)
        case _:
            return ()


def _byte(low: Expr, high: Expr, dtype: DType) -> Expr:
    upper = fold.binary("shl", encode(high, dtype), fold.const(4, BYTE))
    return fold.binary("or", encode(low, dtype), upper)


def _odd_region(construct: str, region: Region, stmt: Stmt) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"{construct} to `{region.buffer.name}`, of which two elements share a byte",
        expected="a start and an extent of the last dimension that are even for certain",
        location=stmt.loc,
    )
