"""Reductions and scans of tiles, the deferred ones of T.alloc_reducer, and any_of and all_of."""

from __future__ import annotations

from collections.abc import Callable

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Region
from tileops.ir.stmt import (
    REDUCE_KINDS,
    Alloc,
    ArgReduce,
    Copy,
    Fill,
    Parallel,
    Reduce,
    Scan,
    Store,
)
from tileops.language.arithmetic import HAS_INFINITY, infinity, max_value, min_value
from tileops.language.buffers import ONE, ZERO, BufferRef, Element, contribute
from tileops.language.copies import copy_regions
from tileops.language.index_arithmetic import is_one
from tileops.language.operands import (
    format_extents,
    int_of,
    matrix,
    one_of,
    same_extents,
    show,
    tile,
    whole,
)
from tileops.language.tracer import require_tracer, tracer_in_launch
from tileops.language.value import BOOL, INT32, Value, describe, named, to_expr

__all__ = [
    "all_of", "any_of", "argmax", "argmin", "cummax", "cummin", "cumsum", "finalize_reducer",
    "reduce", "reduce_absmax", "reduce_abssum", "reduce_bitand", "reduce_bitor", "reduce_bitxor",
    "reduce_max", "reduce_min", "reduce_sum", "reducer_init", "reducer_update",
]  # fmt: skip

_BIT_KINDS = ("bitand", "bitor", "bitxor")


def reduce(
    buffer: object,
    out: object,
    reduce_type: str,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: object = None,
) -> None:
    """Reduce ``buffer`` along ``dim`` into ``out``, accumulated in ``out``'s dtype.

    Without ``clear`` the old ``out`` takes part. ``out`` has ``buffer``'s shape without ``dim``, or
    with extent 1 there. ``batch`` is a hint.
    """
    kind = one_of("T.reduce", "kind", reduce_type, REDUCE_KINDS)
    construct = f"T.reduce_{kind}"
    tracer = require_tracer(construct)
    src, dst, axis = _operands(construct, buffer, out, dim)
    if kind in _BIT_KINDS and (src.dtype.is_float or dst.dtype.is_float):
        raise ProgramTypeError(f"{construct} needs integers", found=f"{src.dtype}")
    if not isinstance(clear, (bool, int)):
        raise ProgramTypeError(f"{construct}: clear must be a Python bool", found=describe(clear))
    stmt = Reduce(kind, src, dst, axis, bool(clear), bool(nan_propagate))
    tracer.emit_tile(construct, stmt)


def _operands(
    construct: str, buffer: object, out: object, dim: object
) -> tuple[Region, Region, int]:
    """The source, the destination and the dimension, checked."""
    src, dst = matrix(construct, "the source", buffer), tile(construct, "the destination", out)
    for region in (src, dst):
        if region.buffer.scope == "global":
            raise ProgramValueError(
                f"{construct} works on tiles on the chip; T.copy the tensor to a fragment first",
                found=show(region),
            )
    axis = _axis(construct, src, dim)
    _check_shapes(construct, src, dst, axis)
    return src, dst, axis


def _axis(construct: str, region: Region, dim: object) -> int:
    number, ndim = int_of(construct, "dim", dim), len(region.extents)
    if not -ndim <= number < ndim:
        raise ProgramValueError(
            f"{construct}: dim {number} is outside the source's {ndim} dimensions",
            found=show(region),
        )
    return number % ndim


def _check_shapes(construct: str, src: Region, dst: Region, axis: int) -> None:
    removed = (*src.extents[:axis], *src.extents[axis + 1 :])
    kept: tuple[Expr, ...] = (*src.extents[:axis], fold.const(1), *src.extents[axis + 1 :])
    shapes = (removed, kept) if removed else (kept,)
    # A slice such as out[stage, :] has leading extents of 1 that the source does not have.
    extents = dst.extents
    while not any(same_extents(s, extents) for s in shapes):
        if len(extents) < len(kept) or not is_one(extents[0]):
            raise ProgramValueError(
                f"{construct}: the destination does not have the source's shape without dimension "
                f"{axis}",
                expected=" or ".join(map(format_extents, shapes)),
                found=show(dst),
            )
        extents = extents[1:]


_NAN_TEXT = """

    A number is preferred to NaN, and NaNs alone give NaN; with ``nan_propagate`` any NaN does.
    """


def _reduction(kind: str, text: str) -> Callable[..., None]:
    def function(
        buffer: object,
        out: object,
        dim: int = -1,
        clear: bool = True,
        batch: int = 1,
        annotations: object = None,
    ) -> None:
        reduce(buffer, out, kind, dim, clear)

    return named(f"reduce_{kind}", text, function)


def _extreme(kind: str, text: str) -> Callable[..., None]:
    def function(
        buffer: object,
        out: object,
        dim: int = -1,
        clear: bool = True,
        batch: int = 1,
        nan_propagate: bool = False,
        annotations: object = None,
    ) -> None:
        reduce(buffer, out, kind, dim, clear, nan_propagate=nan_propagate)

    return named(f"reduce_{kind}", text + _NAN_TEXT, function)


reduce_sum = _reduction("sum", "Sum along ``dim``, accumulated in ``out``'s dtype.")
reduce_bitand = _reduction("bitand", "Bitwise and along ``dim``, integers or bools.")
reduce_bitor = _reduction("bitor", "Bitwise or along ``dim``, integers or bools.")
reduce_bitxor = _reduction("bitxor", "Bitwise exclusive or along ``dim``, integers or bools.")
reduce_max = _extreme("max", "Maximum along ``dim``.")
reduce_min = _extreme("min", "Minimum along ``dim``.")
reduce_absmax = _extreme("absmax", "Largest magnitude along ``dim``.")


def reduce_abssum(
    buffer: object, out: object, dim: int = -1, batch: int = 1, annotations: object = None
) -> None:
    """Sum of magnitudes along ``dim``; always starts from 0."""
    reduce(buffer, out, "abssum", dim)


_PLACE_TEXT = """ along ``dim``: an index from 0, into ``out`` of int32.

    The first of equal elements wins; -0.0 equals 0.0. A NaN never wins, and NaNs alone give 0.
    ``buffer`` is a tile of any dtype; ``out`` has its shape without ``dim``, or with extent 1
    there, and its old value is overwritten. Raises ProgramTypeError for another dtype of ``out``.
    """


def _place(kind: str, text: str) -> Callable[..., None]:
    construct = f"T.arg{kind}"

    def function(buffer: object, out: object, dim: int = -1, annotations: object = None) -> None:
        tracer = require_tracer(construct)
        src, dst, axis = _operands(construct, buffer, out, dim)
        if dst.dtype != INT32:
            raise ProgramTypeError(
                f"{construct}: the destination holds places",
                expected="a tile of int32",
                found=show(dst),
            )
        tracer.emit_tile(construct, ArgReduce(kind, src, dst, axis))

    return named(f"arg{kind}", text + _PLACE_TEXT, function)


argmax = _place("max", "The place of the largest element")
argmin = _place("min", "The place of the smallest element")


_RUNNING_TEXT = """ along ``dim``, in place if ``dst`` is None.

    A number is preferred to NaN: an element is NaN if all elements up to it are.
    """


def _scan(name: str, kind: str, text: str) -> Callable[..., None]:
    construct = f"T.{name}"

    def function(
        src: object,
        dst: object = None,
        dim: int = 0,
        reverse: bool = False,
        annotations: object = None,
    ) -> None:
        tracer = require_tracer(construct)
        source = matrix(construct, "the source", src)
        target = source if dst is None else matrix(construct, "the destination", dst)
        if not same_extents(source.extents, target.extents):
            raise ProgramValueError(
                f"{construct}: source and destination have different shapes",
                expected=format_extents(source.extents),
                found=show(target),
            )
        axis = _axis(construct, source, dim)
        tracer.emit_tile(construct, Scan(kind, source, target, axis, bool(reverse)))

    return named(name, text, function)


cumsum = _scan("cumsum", "sum", "Inclusive sum along ``dim``, in place if ``dst`` is None.")
cummax = _scan("cummax", "max", "Inclusive running maximum" + _RUNNING_TEXT)
cummin = _scan("cummin", "min", "Inclusive running minimum" + _RUNNING_TEXT)


# -- reducers --------------------------------------------------------------------------------------
def _reducer(construct: str, value: object) -> BufferRef:
    if isinstance(value, BufferRef) and value.reducer is not None:
        return value
    raise ProgramTypeError(f"{construct} needs what T.alloc_reducer made", found=describe(value))


def _identity(kind: str, dtype: DType) -> Expr:
    """The value that contributes nothing."""
    if kind in ("sum", "bitor", "bitxor"):
        return fold.const(0, dtype)
    if kind == "bitand":
        return fold.const(True if dtype.is_bool else -1, dtype)
    if dtype in HAS_INFINITY:
        top = infinity(dtype)
        return (-top if kind == "max" else top).expr
    return (min_value(dtype) if kind == "max" else max_value(dtype)).expr


def reducer_init(reducer: object, init: object = None) -> None:
    """Start a reduction; ``init`` (a number or a tile) counts once for each element."""
    tracer = require_tracer("T.reducer_init")
    ref = _reducer("T.reducer_init", reducer)
    if isinstance(init, BufferRef):
        tracer.emit_tile("T.reducer_init", Copy(*copy_regions("T.reducer_init", init, ref)))
        return
    assert ref.reducer is not None
    kind = ref.node.dtype
    value = _identity(ref.reducer, kind) if init is None else fold.cast(to_expr(init, "init"), kind)
    tracer.emit_tile("T.reducer_init", Fill(whole(ref), value))


def reducer_update(acc: object, value: object) -> None:
    """Contribute ``value`` to the element ``acc`` of a reducer, once for each iteration."""
    tracer_in_launch("T.reducer_update")
    if not isinstance(acc, Element):
        raise ProgramTypeError(
            "T.reducer_update takes an element of a reducer, as in acc[i]", found=describe(acc)
        )
    ref = _reducer("T.reducer_update", acc.ref)
    contribute(ref, acc.indices, to_expr(value, "the contribution"))


def finalize_reducer(
    reducer: object, dst: object = None, batch: int = 1, annotations: object = None
) -> None:
    """End a reduction: the result is in ``dst``, or in the reducer itself if ``dst`` is None."""
    tracer = require_tracer("T.finalize_reducer")
    ref = _reducer("T.finalize_reducer", reducer)
    if dst is not None:
        sides = copy_regions("T.finalize_reducer", BufferRef(ref.node), dst)
        tracer.emit_tile("T.finalize_reducer", Copy(*sides))


# -- questions -------------------------------------------------------------------------------------
def any_of(buffer: object) -> Value:
    """True if some element of a tile is not zero."""
    return _question("T.any_of", "bitor", buffer)


def all_of(buffer: object) -> Value:
    """True if no element of a tile is zero."""
    return _question("T.all_of", "bitand", buffer)


def _question(construct: str, kind: str, buffer: object) -> Value:
    tracer = tracer_in_launch(construct)
    if tracer.in_parallel:
        raise ProgramValueError(f"{construct} cannot be inside T.Parallel")
    region = matrix(construct, "the tile", buffer)
    kept = region.walked()
    if len(kept) > 1:
        raise ProgramValueError(f"{construct} works along one dimension", found=describe(buffer))
    extent = region.extents[kept[0]]
    flags = tracer.define(tracer.new_buffer("flags", (extent,), BOOL, "fragment"))
    result = tracer.define(tracer.new_buffer("flag", (ONE,), BOOL, "fragment"))
    tracer.emit(Alloc(flags))
    tracer.emit(Alloc(result))
    i = tracer.new_var("i", DType("int32"))
    indices = fold.region_indices(region, kept, (i,))
    flag = fold.truth(Load(region.dtype, region.buffer, indices))
    tracer.emit_defining(Parallel((i,), (extent,), (Store(flags, (i,), flag),)))
    tracer.emit(Reduce(kind, whole(BufferRef(flags)), Region(result, (ZERO,), (ONE,)), 0, True))
    return Value(Load(BOOL, result, (ZERO,)))
