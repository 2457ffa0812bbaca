"""Lowering of encoded dtypes: bytes in memory, carriers in expressions, codes in between."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tileops.dtypes import UINT8, DType
from tileops.errors import UnsupportedConstructError, UnsupportedOnTargetError
from tileops.ir import fold, walk
from tileops.ir import stmt as ir
from tileops.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Region,
    Select,
    Unary,
    Var,
)
from tileops.ir.program import Program, TensorParam
from tileops.passes.analyze_index import half, parity
from tileops.passes.context import Context
from tileops.passes.encodings import Encoding, Form, Forms, encodings_of
from tileops.passes.expand_tile_ops import expand
from tileops.passes.packed_stores import Pairing, pair_of, refusal

NIBBLE = "nibble"  # Call(uint8, NIBBLE, (byte, k)): the half of ``byte`` that holds element k
# Operators whose result on carriers is a value of the dtype whenever the operands are.
_CLOSED = ("and", "or", "xor", "min", "max")
# Reductions and scans whose result is one of the source's values, or of its bits.
_SELECTING = ("max", "min", "bitand", "bitor", "bitxor")


def lower_encoded(program: Program, context: Context) -> Program:
    """``program`` without the encoded dtypes of the target; itself where it has none.

    Before: buffers and expressions have these dtypes; ``round_fp8`` has left no arithmetic on 8-bit
    floats. After: none has. Tensors of 4-bit dtypes are bytes of two elements. Tiles hold one
    carrier an element, or bytes too where a view has another dtype. Expressions compute on carriers
    and round after each operation. UnsupportedConstructError, located, for what has no such form: a
    store of half a byte, an atomic, a sum into a 4-bit tile.
    """
    of_threads = any(isinstance(s, ir.Threads) for launch in program.launches for s in launch.body)
    in_cpp = of_threads or not context.target.is_gpu
    encodings = encodings_of(context.target, in_cpp=in_cpp)
    if not any(str(dtype) in encodings for dtype in _dtypes(program)):
        return program
    ids = walk.fresh_ids(program)
    forms = Forms(encodings)
    for tensor in program.tensors():
        forms.add_global(tensor.buffer, tensor.loc)
    for buffer in program.workspaces:
        forms.add_global(buffer, None)
    params = tuple(
        dataclasses.replace(p, buffer=forms.held(p.buffer)) if isinstance(p, TensorParam) else p
        for p in program.params
    )
    launches = tuple(_launch(launch, forms, ids) for launch in program.launches)
    workspaces = tuple(map(forms.held, program.workspaces))
    return dataclasses.replace(program, params=params, workspaces=workspaces, launches=launches)


def _dtypes(program: Program) -> Iterator[DType]:
    for buffer in (*(p.buffer for p in program.tensors()), *program.workspaces):
        yield buffer.dtype
    for stmt in walk.walk(program.launches):
        if isinstance(stmt, (ir.AddressView, ir.Alloc, ir.View)):
            yield stmt.buffer.dtype
        for expr in walk.exprs(stmt):
            yield from (e.dtype for e in walk.walk_expr(expr))


def _launch(launch: ir.Launch, outer: Forms, ids: Iterator[int]) -> ir.Launch:
    forms, roots = outer.inside(launch), walk.view_roots(launch.body)

    def pairing(fresh: Callable[[Var], Var]) -> Pairing:
        return Pairing(forms.packed(), forms.even, lambda b: roots.get(b.id, b).id, fresh)

    # A copy becomes a nest of one store, whose variables no other statement has.
    elements = _Elements(forms, ids, pairing(lambda var: var))
    safe_values = tuple(elements.safe_value(b, v) for b, v in launch.safe_values)
    paired = pairing(lambda var: dataclasses.replace(var, id=next(ids))).body(launch.body)
    return dataclasses.replace(launch, body=elements.body(paired), safe_values=safe_values)


# -- tile operations -------------------------------------------------------------------------------
class _TileOperations:
    """Makes nests of copies that convert, and tiles of operands that are bytes."""

    def __init__(self, forms: Forms, ids: Iterator[int], pairing: Pairing) -> None:
        self._forms, self._ids, self._pairing = forms, ids, pairing

    def expanded(self, stmt: ir.Stmt) -> Iterable[ir.Stmt]:
        """The statements that do what ``stmt`` does, with no tile operation on encoded elements."""
        match stmt:
            case ir.Copy():
                return (stmt if self._moves(stmt) else self._nest(stmt),)
            case ir.Fill(dst=dst):
                self._check_whole_bytes("T.fill", dst, stmt)
                return (stmt,)
            case _ if walk.regions(stmt) and not self._moves_codes(stmt):
                return self._on_tiles(stmt)
            case _:
                return (stmt,)

    def _moves(self, stmt: ir.Copy) -> bool:
        """True if a copy is one of the buffers that hold its sides."""
        src, dst = self._forms.kind(stmt.src.buffer), self._forms.kind(stmt.dst.buffer)
        same = stmt.src.dtype == stmt.dst.dtype
        if src in (None, "plain"):
            return dst is None or (dst == "plain" and same)
        whole = self._forms.is_whole_bytes
        return src == dst and same and (src == "coded" or (whole(stmt.src) and whole(stmt.dst)))

    def _moves_codes(self, stmt: ir.Stmt) -> bool:
        """True for an operation that moves elements which are held as their values are."""
        match stmt:
            case (
                ir.Transpose(src=Region(buffer=source), dst=dst) | ir.Im2col(image=source, dst=dst)
            ):
                form = self._forms.get(dst.buffer)
                return form is not None and form.encoding.is_code and source.dtype == dst.dtype
        return False

    def _nest(self, stmt: ir.Copy) -> ir.Stmt:
        """A copy element by element."""
        self._check_whole_bytes("T.copy", stmt.dst, stmt)

        def fresh(name: str, dtype: DType) -> Var:
            return Var(dtype, next(self._ids), name.replace("e", "i"))  # part of the generated text

        (nest,) = self._pairing.body((expand(stmt, fresh),))
        return nest

    def _check_whole_bytes(self, construct: str, region: Region, stmt: ir.Stmt) -> None:
        if self._forms.kind(region.buffer) == "packed" and not self._forms.is_whole_bytes(region):
            raise UnsupportedConstructError(
                f"{construct} to `{region.buffer.name}`, of which two elements share a byte",
                expected="a start and an extent of the last dimension that are even for certain",
                location=stmt.loc,
            )

    def _on_tiles(self, stmt: ir.Stmt) -> Iterator[ir.Stmt]:
        """``stmt`` on tiles that hold the elements of operands that are bytes."""
        self._check_results(stmt)
        changes: dict[str, Any] = {}
        results: list[ir.Copy] = []
        for name in walk.operand_names(stmt):
            old = getattr(stmt, name)
            new: list[object] = []
            for value in old if isinstance(old, tuple) else (old,):
                if not isinstance(value, Region) or self._forms.of_bytes(value.buffer) is None:
                    new.append(value)
                    continue
                tile = self._tile_of(value, stmt)
                new.append(tile)
                yield ir.Alloc(tile.buffer, **stmt.provenance)
                if name in _RESULTS:
                    results.append(ir.Copy(tile, value, **stmt.provenance))
                else:
                    yield self._nest(ir.Copy(value, tile, **stmt.provenance))
            changes[name] = tuple(new) if isinstance(old, tuple) else new[0]
        yield dataclasses.replace(stmt, **changes)
        yield from map(self._nest, results)

    def _tile_of(self, region: Region, stmt: ir.Stmt) -> Region:
        """A tile for the elements of ``region``, in a dtype that holds them."""
        if region.static_extents() is None:
            raise UnsupportedConstructError(
                f"a tile operation on `{region.buffer.name}` of {region.dtype} whose extents are "
                "not constants",
                location=stmt.loc,
            )
        encoding = self._forms.encodings[str(region.dtype)]
        dtype = encoding.factor if isinstance(stmt, ir.Gemm) else encoding.wide
        name = f"{region.buffer.name}_wide" if encoding.is_code else region.buffer.name
        tile = Buffer(next(self._ids), name, region.extents, dtype, "fragment")
        return Region(tile, (fold.const(0),) * len(region.extents), region.extents)

    def _check_results(self, stmt: ir.Stmt) -> None:
        """Refuse results of an encoded dtype that are not elements of their own."""
        if isinstance(stmt, ir.Im2col) and self._forms.kind(stmt.image) is not None:
            raise _unsupported("T.im2col", stmt.image.dtype, stmt)
        for name in _RESULTS:
            region = getattr(stmt, name, None)
            if not isinstance(region, Region):
                continue
            encoding = self._forms.encodings.get(str(region.dtype))
            if encoding is None:
                continue
            if encoding.is_code:
                raise UnsupportedOnTargetError(
                    f"`{type(stmt).__name__.lower()}` with a result of 8-bit floats has no exact "
                    "form on targets before sm_89",
                    location=stmt.loc,
                )
            if isinstance(stmt, (ir.Atomic, ir.Gemm)):
                what = "an atomic" if isinstance(stmt, ir.Atomic) else "T.gemm"
                raise _unsupported(f"{what} into", region.dtype, stmt)
            if isinstance(stmt, (ir.Reduce, ir.Scan)) and (
                stmt.kind not in _SELECTING or not getattr(stmt, "clear", True)
            ):
                raise _unsupported(f"a running {stmt.kind} in", region.dtype, stmt)


# The operands of tile operations that are results.
_RESULTS = ("c", "dst")


def _unsupported(what: str, dtype: DType, stmt: ir.Stmt) -> UnsupportedConstructError:
    return UnsupportedConstructError(
        f"{what} {dtype}; use a wider tile and T.copy it", location=stmt.loc
    )


# -- elements --------------------------------------------------------------------------------------
class _Elements:
    """Rewrites statements and expressions over the buffers that hold encoded ones.

    Arithmetic on codes uses a value several times. Stores and binds can name it, so that it is
    computed once.
    """

    def __init__(self, forms: Forms, ids: Iterator[int], pairing: Pairing) -> None:
        self._forms, self._ids = forms, ids
        self._encodings, self._even = forms.encodings, forms.even
        self._tiles = _TileOperations(forms, ids, pairing)
        self._at: ir.Stmt | None = None  # the statement before which names can be bound
        self._binds: list[ir.Stmt] = []

    def body(self, body: ir.Body) -> ir.Body:
        """A statement list whose stores to packed buffers are paired."""
        made = (new for stmt in body for new in self._tiles.expanded(stmt))
        return tuple(new for stmt in made for new in self._stmt(stmt))

    def safe_value(self, buffer: Buffer, value: Expr) -> tuple[Buffer, Expr]:
        """The same entry of ``Launch.safe_values``."""
        new = self._value(fold.cast(value, buffer.dtype))
        form = self._forms.get(buffer)
        return (buffer, new) if form is None else (form.buffer, _filled(form, new))

    def _stmt(self, stmt: ir.Stmt) -> list[ir.Stmt]:
        binds: list[ir.Stmt] = []
        self._binds = binds
        with self._naming(stmt if isinstance(stmt, (ir.Bind, ir.Store)) else None):
            new = self._store(stmt) if isinstance(stmt, ir.Store) else self._rewritten(stmt)
        return [*binds, walk.map_bodies(new, self.body)]

    def _rewritten(self, stmt: ir.Stmt) -> ir.Stmt:
        changes: dict[str, Any] = {
            name: self._operand(getattr(stmt, name)) for name in walk.operand_names(stmt)
        }
        match stmt:
            case ir.Fill(dst=dst) if (form := self._forms.of_bytes(dst.buffer)) is not None:
                changes["value"] = _filled(form, changes["value"])
            case ir.Print(args=args):
                changes["args"] = tuple(
                    self._ordinary(a) if isinstance(a, Expr) else self._operand(a) for a in args
                )
        return dataclasses.replace(stmt, **changes)

    def _operand(self, value: object) -> object:
        match value:
            case Expr():
                return self._value(value)
            case Buffer():
                return self._forms.held(value)
            case Region():
                return self._region(value)
            case tuple():
                return tuple(map(self._operand, value))
            case _:
                return value

    def _region(self, region: Region) -> Region:
        """The same region of the buffer that holds it: of a packed one, whole bytes."""
        starts, extents = map(self._indices, (region.starts, region.extents))
        if self._forms.kind(region.buffer) == "packed":
            starts, extents = self._in_bytes(starts), self._in_bytes(extents)
        return Region(self._forms.held(region.buffer), starts, extents)

    def _indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(self._value, indices))

    def _in_bytes(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*indices[:-1], half(indices[-1], self._even))

    def _store(self, stmt: ir.Store) -> ir.Stmt:
        form = self._forms.of_bytes(stmt.buffer)
        indices = self._indices(stmt.indices)
        if form is None:
            value = self._value(stmt.value)
        elif form.kind == "coded":
            value = self._code(self._value(stmt.value), form.encoding)
        else:
            elements = pair_of(stmt.value)
            if elements is None:
                raise refusal(stmt, "no loop or neighbouring store that holds both")
            low, high = (self._once("value", self._value(a)) for a in elements)
            value, indices = _byte(low, high, form.encoding), self._in_bytes(indices)
        buffer = self._forms.held(stmt.buffer)
        return dataclasses.replace(stmt, buffer=buffer, indices=indices, value=value)

    # -- expressions -------------------------------------------------------------------------------
    @contextmanager
    def _naming(self, at: ir.Stmt | None) -> Iterator[None]:
        """Inside the block, values used several times get names before ``at``; with None, none."""
        before, self._at = self._at, at
        yield
        self._at = before

    def _once(self, name: str, value: Expr) -> Expr:
        """``value`` under a name where one can be given here, so that it is computed once."""
        if self._at is None or isinstance(value, (Var, Const)):
            return value
        var = Var(value.dtype, next(self._ids), name)
        self._binds.append(ir.Bind(var, value, **self._at.provenance))
        return var

    def _code(self, value: Expr, encoding: Encoding) -> Expr:
        return value if encoding.is_code else encoding.encode(self._once("value", value))

    def _encoding(self, expr: Expr) -> Encoding | None:
        return self._encodings.get(str(expr.dtype))

    def _value(self, expr: Expr) -> Expr:
        """``expr`` over ordinary dtypes: a value of an encoded dtype becomes one of its carrier."""
        encoding = self._encoding(expr)
        match expr:
            case Load():
                return self._load(expr)
            case Cast():
                return self._cast(expr, encoding)
            case Call(name="reinterpret", args=(a,)):
                return self._reinterpret(expr, a)
            case Select(cond=cond, a=a, b=b):
                carrier = expr.dtype if encoding is None else encoding.carrier
                condition = self._value(cond)
                with self._naming(None):  # the branch not taken must not be read before
                    return Select(carrier, condition, self._value(a), self._value(b))
            case Binary(op="land" | "lor"):
                with self._naming(None):
                    return walk.map_children(expr, self._value)
            case _ if encoding is not None:
                return self._encoded(expr, encoding)
            case Call(name="popcount" | "clz", args=(a,)) if self._encoding(a) is not None:
                return self._bit_count(expr, expr.dtype)
            case _:
                return walk.map_children(expr, self._value)

    def _ordinary(self, expr: Expr) -> Expr:
        """``expr`` in a dtype that has its value."""
        value, encoding = self._value(expr), self._encoding(expr)
        return value if encoding is None else encoding.ordinary(value)

    def _cast(self, expr: Cast, target: Encoding | None) -> Expr:
        value = self._ordinary(expr.a)
        if target is None:
            return fold.cast(value, expr.dtype)
        return target.convert(value if target.is_code else self._once("value", value))

    def _encoded(self, expr: Expr, encoding: Encoding) -> Expr:
        """An expression of an encoded dtype that is computed with carriers."""
        carrier = encoding.carrier
        match expr:
            case Const(value=value):
                return encoding.literal(value)
            case Var():
                return dataclasses.replace(expr, dtype=carrier)
            case Call(name="popcount" | "clz"):
                return encoding.canonical(self._bit_count(expr, carrier))
            case Binary() | Unary() | Call():
                new = dataclasses.replace(walk.map_children(expr, self._value), dtype=carrier)
                if isinstance(expr, Binary) and expr.op in _CLOSED:
                    return new
                return encoding.canonical(self._once("value", new))
            case _:
                raise UnsupportedConstructError(
                    f"an expression of {expr.dtype}: {type(expr).__name__}"
                )

    def _bit_count(self, expr: Call, dtype: DType) -> Expr:
        (a,) = expr.args
        count: Expr = Call(
            UINT8, expr.name, (self._encodings[str(a.dtype)].encode(self._value(a)),)
        )
        if expr.name == "clz":
            count = fold.sub(count, fold.const(8 - a.dtype.bits, UINT8))
        return fold.cast(count, dtype)

    def _load(self, load: Load) -> Expr:
        form = self._forms.get(load.buffer)
        if form is None:
            return walk.map_children(load, self._value)
        if form.kind == "plain":
            return Load(form.encoding.carrier, form.buffer, self._indices(load.indices))
        code = self._code_of(load, form)
        return code if form.encoding.is_code else form.encoding.decode(self._once("code", code))

    def _code_of(self, load: Load, form: Form) -> Expr:
        """The code of an element of a packed or coded buffer."""
        indices = self._indices(load.indices)
        if form.kind == "coded":
            return Load(UINT8, form.buffer, indices)
        last = indices[-1]
        byte = Load(UINT8, form.buffer, self._in_bytes(indices))
        side = parity(last, self._even)
        if side is None:
            return Call(UINT8, NIBBLE, (byte, last))
        op, number = ("shr", 4) if side else ("and", 15)
        return fold.binary(op, byte, fold.const(number, UINT8))

    def _reinterpret(self, expr: Call, a: Expr) -> Expr:
        source, target = self._encoding(a), self._encoding(expr)
        if source is None and target is None:
            return walk.map_children(expr, self._value)
        form = self._forms.of_bytes(a.buffer) if isinstance(a, Load) else None
        if source is None:
            code = _as_dtype(self._value(a), UINT8)
        elif isinstance(a, Load) and form is not None:
            code = self._code_of(a, form)
        else:
            code = self._code(self._value(a), source)
        return _as_dtype(code, expr.dtype) if target is None else target.decode(code)


def _as_dtype(code: Expr, dtype: DType) -> Expr:
    return code if code.dtype == dtype else Call(dtype, "reinterpret", (code,))


def _byte(low: Expr, high: Expr, encoding: Encoding) -> Expr:
    upper = fold.binary("shl", encoding.encode(high), fold.const(4, UINT8))
    return fold.binary("or", encoding.encode(low), upper)


def _filled(form: Form, value: Expr) -> Expr:
    """What a byte of a buffer holds where all its elements are ``value``."""
    if form.kind == "packed":
        return _byte(value, value, form.encoding)
    return form.encoding.encode(value)
