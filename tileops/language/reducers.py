"""Owns the deferred reductions of T.alloc_reducer, and the questions any_of and all_of."""

from __future__ import annotations

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Region
from tileops.ir.stmt import Alloc, Copy, Fill, Parallel, Reduce, Store
from tileops.language.arithmetic import infinity, max_value, min_value
from tileops.language.buffers import ONE, ZERO, BufferRef, Element, contribute
from tileops.language.copies import copy_regions
from tileops.language.operands import matrix, whole
from tileops.language.tracer import require_tracer
from tileops.language.value import BOOL, Value, describe, to_expr

_INFINITE = ("float16", "bfloat16", "float32", "float64", "float8_e5m2")


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
    if dtype in _INFINITE:
        top = infinity(dtype)
        return (-top if kind == "max" else top).expr
    return (min_value(dtype) if kind == "max" else max_value(dtype)).expr


def reducer_init(reducer: object, init: object = None) -> None:
    """Start a reduction; ``init`` (a number or a tile) counts once for each element."""
    tracer = require_tracer("T.reducer_init")
    ref = _reducer("T.reducer_init", reducer)
    if isinstance(init, BufferRef):
        source, target = copy_regions("T.reducer_init", init, ref)
        tracer.emit_tile("T.reducer_init", Copy(source, target))
        return
    assert ref.reducer is not None
    kind = ref.node.dtype
    value = _identity(ref.reducer, kind) if init is None else fold.cast(to_expr(init, "init"), kind)
    tracer.emit_tile("T.reducer_init", Fill(whole(ref), value))


def reducer_update(acc: object, value: object) -> None:
    """Contribute ``value`` to the element ``acc`` of a reducer, once for each iteration."""
    tracer = require_tracer("T.reducer_update")
    tracer.require_launch("T.reducer_update")
    if not isinstance(acc, Element):
        raise ProgramTypeError(
            "T.reducer_update takes an element of a reducer, as in acc[i]", found=describe(acc)
        )
    ref = _reducer("T.reducer_update", acc.ref)
    contribute(ref, acc.indices, to_expr(value, "the contribution"))


def finalize_reducer(
    reducer: object, dst: object = None, batch: int = 1, annotations: object = None
) -> None:
    """End a reduction: the result is in ``dst``, or in the reducer itself where ``dst`` is None."""
    tracer = require_tracer("T.finalize_reducer")
    ref = _reducer("T.finalize_reducer", reducer)
    if dst is None:
        return
    source, target = copy_regions("T.finalize_reducer", BufferRef(ref.node), dst)
    tracer.emit_tile("T.finalize_reducer", Copy(source, target))


def any_of(buffer: object) -> Value:
    """True where some element of a tile is not zero."""
    return _question("T.any_of", "bitor", buffer)


def all_of(buffer: object) -> Value:
    """True where no element of a tile is zero."""
    return _question("T.all_of", "bitand", buffer)


def _question(construct: str, kind: str, buffer: object) -> Value:
    tracer = require_tracer(construct)
    tracer.require_launch(construct)
    if tracer.in_parallel:
        raise ProgramValueError(f"{construct} cannot stand inside T.Parallel")
    region = matrix(construct, "the tile", buffer)
    kept = [d for d in range(len(region.extents)) if d in region.squeezed()] or [
        len(region.extents) - 1
    ]
    if len(kept) > 1:
        raise ProgramValueError(f"{construct} works along one dimension", found=describe(buffer))
    extent = region.extents[kept[0]]
    flags = tracer.define_buffer(tracer.new_buffer("flags", (extent,), BOOL, "fragment"))
    result = tracer.define_buffer(tracer.new_buffer("flag", (ONE,), BOOL, "fragment"))
    tracer.emit(Alloc(flags))
    tracer.emit(Alloc(result))
    i = tracer.new_var("i", DType("int32"))
    indices = tuple(fold.add(s, i) if d == kept[0] else s for d, s in enumerate(region.starts))
    flag = fold.truth(Load(region.dtype, region.buffer, indices))
    tracer.emit_defining(Parallel((i,), (extent,), (Store(flags, (i,), flag),)))
    tracer.emit(Reduce(kind, whole(BufferRef(flags)), Region(result, (ZERO,), (ONE,)), 0, True))
    return Value(Load(BOOL, result, (ZERO,)))
