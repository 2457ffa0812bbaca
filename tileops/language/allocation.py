"""Constructs that make buffers: tiles, scalar variables, workspaces, outputs; their shapes."""

from __future__ import annotations

import math

from tileops.dtypes import DType, is_dtype_like
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Const, Expr
from tileops.ir.printer import print_expr
from tileops.ir.program import TensorParam
from tileops.ir.stmt import Alloc
from tileops.language.buffers import ONE, REDUCER_OPS, BufferRef, VarRef
from tileops.language.operands import one_of, text_of
from tileops.language.tracer import Tracer, require_tracer, tracer_in_launch
from tileops.language.value import INT32, as_dtype, as_tuple, index_expr, to_expr

__all__ = [
    "alloc_fragment", "alloc_global", "alloc_local", "alloc_reducer", "alloc_shared", "alloc_var",
    "empty",
]  # fmt: skip


def static_shape(what: str, shape: object) -> tuple[Expr, ...]:
    """A shape given by the user (int, value, tuple or list) as positive int32 expressions."""
    dims = as_tuple(shape)
    if not dims:
        raise ProgramValueError(f"{what} needs at least one dimension")
    if any(d is Ellipsis for d in dims):
        raise ProgramValueError(
            f"`...` in the shape of {what}",
            expected="`...` once, first in the shape of a tensor parameter or of T.empty; "
            "elsewhere `A.shape[0]`, the product of the leading dimensions of `A`",
        )
    out = tuple(index_expr(d, f"an extent of {what}") for d in dims)
    for extent in out:
        if isinstance(extent, Const) and extent.value < 0:
            raise ProgramValueError(f"an extent of {what} is negative", found=print_expr(extent))
    return tuple(
        fold.cast(e, INT32) if isinstance(e, Const) and abs(e.value) < 2**31 else e for e in out
    )


def leading_shape(tracer: Tracer, what: str, shape: object) -> tuple[bool, tuple[Expr, ...]]:
    """Whether a shape begins with ``...``, and the shape with their product in that place."""
    dims = as_tuple(shape)
    is_leading = bool(dims) and dims[0] is Ellipsis
    rest = dims[1:] if is_leading else dims
    first = (tracer.leading_size(),) if is_leading else ()
    return is_leading, (*first, *(static_shape(what, rest) if rest or not first else ()))


def _made(
    tracer: Tracer, what: str, default: str, shape: tuple[Expr, ...], dtype: DType, scope: str
) -> Buffer:
    """A new buffer; ProgramValueError if its extents are constant and it is too large."""
    name = tracer.take_name(default)
    buffer = tracer.new_buffer(name, shape, dtype, scope)
    # Places in a tile are numbers of 32 bits; those of a tensor, and its bytes, of 64.
    most = 2**31 - 1 if buffer.is_on_chip else 2**63 - 1
    extents = buffer.static_shape()
    count = 0 if extents is None else math.prod(extents)
    size = -(-count * dtype.bits // 8)
    if extents is not None and size > most:
        raise ProgramValueError(
            f"{what.format(name)} is too large",
            expected=f"at most {most} bytes",
            found=f"{dtype}[{', '.join(map(str, extents))}], {count} elements in {size} bytes",
        )
    return tracer.define(buffer, permanent=not buffer.is_on_chip)


def check_packed(
    construct: str,
    shape: tuple[Expr, ...],
    dtype: DType,
    strides: tuple[Expr, ...] | None = None,
) -> None:
    """ProgramValueError for a tensor of a 4-bit dtype whose rows are not whole bytes."""
    if dtype.bits >= 8:
        return
    what = f"{construct} of {dtype} holds two elements a byte along its last dimension"
    last = shape[-1] if shape else None
    if last is None or _is_odd(last):
        found = f"a shape of {len(shape)} dimensions"
        raise ProgramValueError(
            what,
            expected="a last dimension that is even",
            found=found + (f", the last {print_expr(last)}" if last is not None else ""),
        )
    steps = strides or (ONE,)
    if steps[-1] != ONE or any(map(_is_odd, steps[:-1])):
        raise ProgramValueError(
            what,
            expected="strides in elements, the last 1 and the others even",
            found=f"strides ({', '.join(map(print_expr, steps))})",
        )


def _is_odd(expr: Expr) -> bool:
    return isinstance(expr, Const) and int(expr.value) % 2 == 1


# -- constructs ------------------------------------------------------------------------------------
SCOPES = {
    "shared": "shared",
    "shared.dyn": "shared",
    "fragment": "fragment",
    "local.fragment": "fragment",
    "local": "local",
    "local.var": "var",
}


def _alloc(construct: str, default_name: str, shape: object, dtype: object, scope: str) -> Buffer:
    tracer = tracer_in_launch(construct)
    if text_of(construct, "scope", scope) not in SCOPES:
        raise UnsupportedConstructError(f"{construct} with scope {scope!r}")
    kind = as_dtype(dtype)
    extents = static_shape(construct, shape)
    check_static(tracer, construct, extents)
    what = f"the tile `{{}}` ({construct})"
    buffer = _made(tracer, what, default_name, extents, kind, SCOPES[scope])
    tracer.emit(Alloc(buffer))
    return buffer


def check_static(tracer: Tracer, construct: str, extents: tuple[Expr, ...]) -> None:
    """ProgramValueError for extents of a tile that are unknown at compile time, or below 1."""
    for extent in extents:
        if isinstance(extent, Const):
            if extent.value < 1:
                raise ProgramValueError(
                    f"{construct}: every extent must be at least 1", found=str(extent.value)
                )
        elif not tracer.depends_on_consts_only(extent):
            raise ProgramValueError(
                f"{construct} needs a shape that is known at compile time (T.const or Python "
                "numbers)"
            )


def alloc_shared(shape: object, dtype: object, scope: str = "shared.dyn") -> BufferRef:
    """A tile in the block's shared memory. ``shape`` is static; contents start undefined."""
    return BufferRef(_alloc("T.alloc_shared", "shared", shape, dtype, scope))


def alloc_fragment(shape: object, dtype: object, scope: str = "local.fragment") -> BufferRef:
    """A tile in registers, indexed logically. ``shape`` is static; contents start undefined."""
    return BufferRef(_alloc("T.alloc_fragment", "fragment", shape, dtype, scope))


def alloc_local(shape: object, dtype: object, scope: str = "local") -> BufferRef:
    """A small array private to a thread; all threads hold the same."""
    return BufferRef(_alloc("T.alloc_local", "local", shape, dtype, scope))


def alloc_var(
    dtype: object, *args: object, scope: str = "local.var", init: object = None
) -> VarRef:
    """A scalar that changes: ``alloc_var(dtype, [init], [scope])``; both may be given by name.

    Without ``init`` it starts as 0 once, at its declaration; ``init`` is stored each time the
    statement runs.
    """
    tracer = tracer_in_launch("T.alloc_var")
    init, scope = _var_arguments(args, init, scope)
    if scope not in ("local.var", "local"):
        raise UnsupportedConstructError(f"T.alloc_var with scope {scope!r}")
    kind = as_dtype(dtype)
    value = None if init is None else fold.cast(to_expr(init, "the initial value"), kind)
    buffer = tracer.new_buffer(tracer.take_name("var"), (ONE,), kind, "var")
    tracer.define(buffer)
    tracer.emit(Alloc(buffer, value))
    return VarRef(BufferRef(buffer))


def _var_arguments(args: tuple[object, ...], init: object, scope: str) -> tuple[object, str]:
    if len(args) > 2:
        raise ProgramTypeError("T.alloc_var takes at most a dtype, an initial value and a scope")
    if len(args) == 1 and isinstance(args[0], str):
        return init, str(args[0])
    if args and init is not None:
        raise ProgramTypeError("T.alloc_var got its initial value twice")
    if len(args) == 2:
        return args[0], str(args[1])
    return (args[0] if args else init), scope


def alloc_global(shape: object, dtype: object, scope: str = "global") -> BufferRef:
    """A workspace in global memory, new for each call and shared by the program's launches."""
    tracer = require_tracer("T.alloc_global")
    if scope != "global":
        raise UnsupportedConstructError(f"T.alloc_global with scope {scope!r}")
    extents, kind = static_shape("T.alloc_global", shape), as_dtype(dtype)
    check_packed("T.alloc_global", extents, kind)
    if kind.bits < 8 and not tracer.depends_on_consts_only(extents[-1]):
        raise UnsupportedConstructError(
            f"T.alloc_global of {kind} whose last dimension is known only at run time",
            expected="an even extent that is a constant or a T.const",
        )
    what = "the workspace `{}` (T.alloc_global)"
    buffer = _made(tracer, what, "workspace", extents, kind, "global")
    tracer.workspaces.append(buffer)
    return BufferRef(buffer)


def alloc_reducer(
    shape: object, dtype: object, op: str = "sum", replication: str | None = None
) -> BufferRef:
    """A fragment that collects contributions of many iterations.

    ``op`` is sum, max, min, bitand, bitor or bitxor.
    ``replication`` is the older form (fill, update by ``+=`` in T.Parallel, T.finalize_reducer in
    place).
    """
    one_of("T.alloc_reducer", "op", op, REDUCER_OPS)
    if replication is not None:
        one_of("T.alloc_reducer", "replication", replication, ("all", "none"))
    buffer = _alloc("T.alloc_reducer", "reducer", shape, dtype, "local.fragment")
    if op.startswith("bit") and buffer.dtype.is_float:
        raise ProgramTypeError(f"T.alloc_reducer: {op} needs integers", found=str(buffer.dtype))
    return BufferRef(buffer, reducer=op)


def empty(*shape: object, dtype: object = "float32") -> BufferRef:
    """An output that the program returns: ``empty(M, N, dtype=t)`` or ``empty((M, N), t)``.

    ``empty((..., N), t)`` has the leading dimensions that the tensor parameters with ``...`` have
    in the call; in the program they are one, of their product.
    """
    tracer = require_tracer("T.empty")
    if tracer.launch is not None:
        raise ProgramValueError("T.empty must be outside `with T.Kernel`")
    dims: object = shape
    if shape and isinstance(shape[0], (tuple, list)):
        if len(shape) > 2:
            raise ProgramTypeError(
                "T.empty((...), dtype) takes one shape and one dtype", found=f"{len(shape)} values"
            )
        dtype = shape[1] if len(shape) == 2 else dtype
        dims = shape[0]
    elif len(shape) == 2 and (is_dtype_like(shape[1]) or isinstance(shape[1], str)):
        dims, dtype = (shape[0],), shape[1]
    is_leading, extents = leading_shape(tracer, "T.empty", dims)
    kind = DType(as_dtype(dtype))
    check_packed("T.empty", extents[is_leading:], kind)
    buffer = _made(tracer, "the output `{}` (T.empty)", "output", extents, kind, "global")
    tracer.outputs.append(
        TensorParam(buffer.name, buffer, allocated=True, leading=is_leading, loc=tracer.location)
    )
    return BufferRef(buffer)
