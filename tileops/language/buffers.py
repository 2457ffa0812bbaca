"""Buffers in a program, their elements and slices, and scalar variables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import NoReturn

from tileops.errors import ProgramIndexError, ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Const, Expr, Load, Region, Var, comma_separated
from tileops.ir.printer import print_expr
from tileops.ir.stmt import Atomic, Store
from tileops.ir.walk import walk_expr
from tileops.language.index_arithmetic import difference
from tileops.language.tracer import Tracer, active_tracer, require_tracer, tracer_in_launch
from tileops.language.value import (
    Value,
    as_int,
    as_tuple,
    bind,
    describe,
    dtype,
    has_load,
    index_expr,
    is_scalar,
    to_expr,
    unwrap_int,
)

ZERO: Expr = fold.const(0)
ONE: Expr = fold.const(1)


class Scope(str):
    """A buffer's scope: a string that may also be called, as TVM's ``buffer.scope()``."""

    __slots__ = ()

    def __call__(self) -> str:
        """The scope's name."""
        return str(self)


@dataclass(frozen=True)
class DataPointer:
    """The storage of a buffer, what ``buffer.data`` gives; T.Tensor makes another view of it."""

    source: Buffer


class _Elementwise:
    """Buffers and their slices: they have elements, and refuse arithmetic of their own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{describe(self)}>"

    def _refuse(self, *_: object) -> NoReturn:
        raise ProgramTypeError(
            "buffers and slices have no arithmetic; write it for their elements, in a T.Parallel "
            "loop",
            found=describe(self),
        )

    def __eq__(self, other: object) -> bool:
        return self._refuse() if is_scalar(other) else self is other

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> NoReturn:
        raise ProgramTypeError(
            "a buffer or a slice is neither true nor false; write the condition for its elements, "
            "and `is not None` for a tensor that a call may leave out",
            found=describe(self),
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __lshift__ = __rshift__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __invert__ = __abs__ = _refuse


class BufferRef(_Elementwise):
    """A tensor or tile in a program. Indexing gives an element, slicing a region."""

    __slots__ = ("node", "reducer")

    def __init__(self, node: Buffer, reducer: str | None = None) -> None:
        self.node = node
        self.reducer = reducer

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def shape(self) -> tuple[int | Value, ...]:
        """The extents; constant ones are Python ints."""
        return tuple(unwrap_int(e) for e in self.node.shape)

    @property
    def strides(self) -> tuple[int | Value, ...]:
        """The strides in elements; those of a row-major buffer are computed."""
        return tuple(unwrap_int(e) for e in fold.strides_of(self.node))

    def stride(self, dim: int | None = None) -> object:
        """As torch's: one stride, or all of them, in elements."""
        return self.strides if dim is None else self.strides[dim]

    def size(self, dim: int | None = None) -> object:
        """As torch's: one extent, or all of them."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int | Value:
        """As torch's: the number of elements."""
        return unwrap_int(reduce(fold.mul, self.node.shape, ONE))

    @property
    def ndim(self) -> int:
        return self.node.ndim

    def dim(self) -> int:
        """As torch's: the number of dimensions."""
        return self.node.ndim

    def element_size(self) -> int:
        """As torch's: the bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int | Value:
        """As torch's: the bytes of all elements."""
        return self.numel() * self.element_size()

    def is_contiguous(self) -> bool:
        """As torch's; ProgramTypeError where a call tells the strides."""
        if self.node.strides is not None:
            raise ProgramTypeError(
                f"the strides of `{self.name}` are known only at a call; a tensor that is "
                "declared without strides is contiguous"
            )
        return True

    @property
    def dtype(self) -> dtype:
        return dtype(self.node.dtype)

    @property
    def scope(self) -> Scope:
        """``global``, ``shared``, ``fragment`` or ``local``."""
        return Scope(self.node.scope)

    @property
    def data(self) -> DataPointer:
        return DataPointer(self.node)

    def describe(self) -> str:
        """The text in error messages."""
        return _described(self.name, self.node, self.node.shape)

    def __len__(self) -> int:
        raise ProgramTypeError(f"len() of the buffer `{self.name}`; use `{self.name}.shape[0]`")

    def __iter__(self) -> object:
        raise ProgramTypeError(
            f"the buffer `{self.name}` cannot be iterated; loop over T.serial(...) and index it"
        )

    def __getitem__(self, key: object) -> Element | RegionRef:
        keys = _index_tuple(self, key)
        if any(isinstance(k, slice) for k in keys):
            return _slice(self, keys)
        return Element(self, _indices(self, keys))

    def __setitem__(self, key: object, value: object) -> None:
        keys = _index_tuple(self, key)
        if any(isinstance(k, slice) for k in keys):
            raise ProgramTypeError(
                f"a slice of `{self.name}` cannot be assigned; use T.copy, T.fill or a T.Parallel "
                "loop"
            )
        store(self, _indices(self, keys), value)


class RegionRef(_Elementwise):
    """A box of a buffer, made by slicing: an operand of tile operations."""

    __slots__ = ("ref", "region")

    def __init__(self, ref: BufferRef, region: Region) -> None:
        self.ref = ref
        self.region = region

    @property
    def buffer(self) -> BufferRef:
        return self.ref

    @property
    def dtype(self) -> dtype:
        return self.ref.dtype

    @property
    def shape(self) -> tuple[int | Value, ...]:
        """The extents of the box, one a dimension of the buffer."""
        return tuple(unwrap_int(e) for e in self.region.extents)

    def snapshot(self, name: str) -> RegionRef:
        """The region at its present place: starts that read memory are read now."""
        starts = self.region.starts
        if not any(has_load(s) for s in starts):
            return self
        now = tuple(bind(name, s).expr if has_load(s) else s for s in starts)
        return RegionRef(self.ref, Region(self.region.buffer, now, self.region.extents))

    def describe(self) -> str:
        """The text in error messages."""
        return _described(f"{self.ref.name}[...]", self.ref.node, self.region.extents)

    def __getitem__(self, key: object) -> object:
        raise ProgramTypeError(f"a slice of `{self.ref.name}` cannot be indexed again")

    def __setitem__(self, key: object, value: object) -> None:
        raise ProgramTypeError(f"a slice of `{self.ref.name}` cannot be stored to")


class Element(Value):
    """One element of a buffer: its value in expressions, a start position in tile operations."""

    __slots__ = ("indices", "ref")

    def __init__(self, ref: BufferRef, indices: tuple[Expr, ...]) -> None:
        super().__init__(Load(ref.node.dtype, ref.node, indices))
        self.ref = ref
        self.indices = indices

    @property
    def buffer(self) -> BufferRef:
        return self.ref

    def describe(self) -> str:
        """The text in error messages."""
        return f"the element {self.ref.name}[{comma_separated(self.indices)}]"

    def store(self, value: object) -> None:
        """Record ``element = value``."""
        store(self.ref, self.indices, value)


class VarRef(Element):
    """A scalar that changes (T.alloc_var). Its name reads the value and ``name = e`` stores.

    ``fresh`` until the first assignment gives it its name.
    """

    __slots__ = ("fresh",)

    def __init__(self, ref: BufferRef) -> None:
        super().__init__(ref, (ZERO,))
        self.fresh = True

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)

    def __getitem__(self, key: object) -> Element | RegionRef:
        return self.ref[key]

    def __setitem__(self, key: object, value: object) -> None:
        self.ref[key] = value


def _described(name: str, node: Buffer, extents: tuple[Expr, ...]) -> str:
    return f"{name}: {node.dtype}[{comma_separated(extents)}] ({node.scope})"


def _index_tuple(ref: BufferRef, key: object) -> tuple[object, ...]:
    keys = as_tuple(key)
    if len(keys) != ref.ndim:
        raise ProgramIndexError(
            f"`{ref.name}` has {ref.ndim} dimension{'s' if ref.ndim != 1 else ''} and is indexed "
            f"with {len(keys)} {'indices' if len(keys) != 1 else 'index'}",
            expected=ref.describe(),
        )
    return keys


def _indices(ref: BufferRef, keys: tuple[object, ...]) -> tuple[Expr, ...]:
    out = tuple(_one_index(ref, d, k) for d, k in enumerate(keys))
    tracer = active_tracer()
    if tracer is not None and tracer.in_parallel and ref.node.scope in ("fragment", "local"):
        _check_parallel_index(tracer, ref, out)
    return out


def _one_index(ref: BufferRef, dim: int, key: object) -> Expr:
    extent = ref.node.shape[dim]
    number = as_int(key)
    if number is None:
        return index_expr(key, f"index {dim} of `{ref.name}`")
    if number < 0:
        position = fold.add(extent, fold.const(number))
        if isinstance(position, Const) and position.value < 0:
            raise _out_of_range(ref, dim, number)
        return position
    if ref.node.is_on_chip and isinstance(extent, Const) and number >= extent.value:
        raise _out_of_range(ref, dim, number)
    return fold.const(number)


def _out_of_range(ref: BufferRef, dim: int, number: int) -> ProgramIndexError:
    return ProgramIndexError(
        f"index {number} is outside dimension {dim} of `{ref.name}`", expected=ref.describe()
    )


def _check_parallel_index(tracer: Tracer, ref: BufferRef, indices: tuple[Expr, ...]) -> None:
    used = {e for index in indices for e in walk_expr(index) if isinstance(e, Var)}
    for var, extent in (axis for region in tracer.regions for axis in region.parallel):
        if var not in used:
            continue
        if ref.node.scope == "local":
            raise ProgramValueError(
                f"the local buffer `{ref.name}` is indexed by the T.Parallel variable "
                f"`{var.name}`; a local buffer is private to one thread, use T.alloc_fragment"
            )
        if not tracer.depends_on_consts_only(extent):
            raise ProgramValueError(
                f"the fragment `{ref.name}` is indexed by the T.Parallel variable `{var.name}`, "
                "whose extent is not a compile-time constant",
                found=f"extent {print_expr(extent)}",
            )


def _slice(ref: BufferRef, keys: tuple[object, ...]) -> RegionRef:
    sides = [
        _slice_bounds(ref, d, k) if isinstance(k, slice) else (_one_index(ref, d, k), ONE)
        for d, k in enumerate(keys)
    ]
    starts, extents = zip(*sides, strict=True)
    return RegionRef(ref, Region(ref.node, starts, extents))


def _slice_bounds(ref: BufferRef, dim: int, key: slice) -> tuple[Expr, Expr]:
    if key.step is not None and as_int(key.step) != 1:
        raise ProgramValueError(f"a slice of `{ref.name}` cannot have a step")
    whole = ref.node.shape[dim]
    start = ZERO if key.start is None else _bound(key.start, whole)
    stop = whole if key.stop is None else _bound(key.stop, whole)
    extent = difference(stop, start)
    if isinstance(extent, Const) and extent.value < 0:
        raise ProgramValueError(
            f"the slice of dimension {dim} of `{ref.name}` ends before it starts",
            found=f"{print_expr(start)} : {print_expr(stop)}",
        )
    out = isinstance(whole, Const) and isinstance(stop, Const) and stop.value > whole.value
    if out and ref.node.is_on_chip:
        raise ProgramIndexError(
            f"the slice of dimension {dim} of `{ref.name}` ends at {print_expr(stop)}, past its "
            "end",
            expected=ref.describe(),
        )
    return start, extent


def _bound(value: object, whole: Expr) -> Expr:
    number = as_int(value)
    if number is not None and number < 0:
        return fold.add(whole, fold.const(number))
    return index_expr(value, "a slice bound")


# The operator of each kind of reducer: that of a store `r[i] = r[i] + v`, and of the atomic.
REDUCER_OPS = {
    "sum": "add", "max": "max", "min": "min", "bitand": "and", "bitor": "or", "bitxor": "xor",
}  # fmt: skip


def store(ref: BufferRef, indices: tuple[Expr, ...], value: object) -> None:
    """Record a store of one element; the value is converted to the buffer's dtype."""
    tracer = tracer_in_launch(f"a store to `{ref.name}`")
    expr = to_expr(value, f"the value stored to `{ref.name}`")
    if ref.reducer is None or not tracer.in_parallel:
        tracer.emit(Store(ref.node, indices, fold.cast(expr, ref.node.dtype)))
        return
    # `r[i] = op(r[i], v)` on a reducer is one contribution of `v`.
    op, current = REDUCER_OPS[ref.reducer], Load(ref.node.dtype, ref.node, indices)
    if isinstance(expr, Binary) and expr.op == op and current in (expr.a, expr.b):
        contribute(ref, indices, expr.b if expr.a == current else expr.a)
        return
    raise ProgramValueError(
        f"inside T.Parallel the reducer `{ref.name}` takes contributions of its own kind only",
        expected=f"{ref.name}[...] combined by {ref.reducer}",
        found=print_expr(expr),
    )


def contribute(ref: BufferRef, indices: tuple[Expr, ...], value: Expr) -> None:
    """Record one contribution to an element of a reducer."""
    assert ref.reducer is not None
    where = Region(ref.node, indices, (ONE,) * ref.ndim)
    require_tracer("a reducer update").emit(
        Atomic(REDUCER_OPS[ref.reducer], where, fold.cast(value, ref.node.dtype))
    )
