"""Views: other shapes and dtypes of a buffer's storage, and tensors at addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.stmt import AddressView, Bind, View
from tileops.ir.walk import walk, walk_expr
from tileops.language.allocation import check_packed, check_static, static_shape
from tileops.language.buffers import BufferRef, DataPointer
from tileops.language.index_arithmetic import are_different, product
from tileops.language.operands import format_extents, operand
from tileops.language.tracer import Tracer, require_tracer, tracer_in_launch
from tileops.language.value import INT64, Value, as_dtype, as_tuple, describe, index_expr

__all__ = ["make_tensor", "reshape", "view"]


@dataclass(eq=False, repr=False)
class Pointer:
    """A T.ptr parameter in a program: T.make_tensor gives it a shape and a dtype."""

    node: Buffer

    @property
    def data(self) -> DataPointer:
        return DataPointer(self.node)

    def describe(self) -> str:
        """The text in error messages."""
        return f"the pointer `{self.node.name}`, which has no shape (use T.make_tensor)"

    def __getitem__(self, key: object) -> object:
        raise ProgramTypeError(f"cannot index {self.describe()}")

    def __setitem__(self, key: object, value: object) -> None:
        raise ProgramTypeError(f"cannot store to {self.describe()}")


def _storage(data: object) -> Buffer | None:
    """The buffer that a T.ptr parameter or a ``.data`` names; None for anything else."""
    if isinstance(data, Pointer):
        return data.node
    return data.source if isinstance(data, DataPointer) else None


def _refuse_strided(construct: str, source: Buffer) -> None:
    if source.strides is not None:
        raise UnsupportedConstructError(
            f"{construct} gives a view of `{source.name}`, which has strides of its own",
            expected="a tensor or tile that is row-major contiguous",
        )


def _view_of(
    construct: str,
    source: Buffer,
    shape: tuple[Expr, ...],
    dtype: DType,
    strides: tuple[Expr, ...] | None = None,
    name: str = "view",
) -> BufferRef:
    tracer = require_tracer(construct)
    _refuse_strided(construct, source)
    buffer = tracer.new_buffer(tracer.take_name(name), shape, dtype, source.scope, strides)
    tracer.emit_view(View(buffer, source))
    return BufferRef(buffer)


def make_view(data: object, shape: object, dtype: DType) -> BufferRef:
    """``T.Tensor(shape, dtype, data=...)``: a row-major view of a buffer's storage."""
    construct = "T.Tensor(..., data=...)"
    source = _storage(data)
    if source is None:
        raise UnsupportedConstructError(
            f"{construct} takes the `.data` of a buffer of this program"
        )
    return _view_of(construct, source, static_shape("a view", shape), dtype)


def _view(construct: str, src: object, shape: object, dtype: DType | None) -> BufferRef:
    tracer = tracer_in_launch(construct)
    if not isinstance(src, BufferRef):
        operand(construct, "the source", src)
        raise ProgramTypeError(f"{construct} takes a whole buffer")
    _refuse_strided(construct, src.node)
    dtype = dtype or src.node.dtype
    extents = static_shape(construct, shape)
    if src.node.is_on_chip:
        check_static(tracer, construct, extents)
    before = product(src.node.shape, fold.const(src.node.dtype.bits))
    if are_different(before, product(extents, fold.const(dtype.bits))):
        raise ProgramValueError(
            f"{construct} must keep the number of bits",
            expected=f"as many bits as {src.describe()}",
            found=f"{format_extents(extents)} of {dtype}",
        )
    return _view_of(construct, src.node, extents, dtype)


def reshape(src: object, shape: object) -> BufferRef:
    """The same storage with another shape, row-major; the number of elements stays."""
    return _view("T.reshape", src, shape, None)


def view(src: object, shape: object = None, dtype: object = None) -> BufferRef:
    """The same storage with another shape or dtype; the number of bits stays."""
    kind = None if dtype is None else as_dtype(dtype)
    if shape is None and isinstance(src, BufferRef):
        shape = src.shape
    return _view("T.view", src, shape, kind)


def make_tensor(
    ptr: object, shape: object, dtype: object = "float32", strides: object = None
) -> BufferRef:
    """The tensor of ``shape`` and ``dtype`` at a pointer: row-major, or with ``strides``.

    ``ptr`` is a T.ptr parameter, the ``.data`` of a buffer, or an int64 value that holds an
    address, such as an element of a table. Strides count elements. The memory there is not
    checked: it must be memory of the device that stays alive until the kernel has run.
    """
    tracer = require_tracer("T.make_tensor")
    kind = as_dtype(dtype)
    dims = static_shape("T.make_tensor", shape)
    steps = None
    if strides is not None:
        given = strides_of("T.make_tensor", dims, strides)
        steps = tuple(index_expr(s, "a stride of T.make_tensor") for s in given)
    check_packed("T.make_tensor", dims, kind, steps)
    if isinstance(ptr, Value):
        return _at_address(tracer, ptr, dims, kind, steps)
    source = _storage(ptr)
    if source is None:
        raise ProgramTypeError(
            "T.make_tensor takes a pointer",
            expected="a T.ptr parameter, the .data of a buffer, or an int64 address",
            found=describe(ptr),
        )
    return _view_of("T.make_tensor", source, dims, kind, steps, name="tensor")


def strides_of(construct: str, dims: Sequence[object], strides: object) -> tuple[object, ...]:
    """``strides`` as a tuple; ProgramValueError unless there is one a dimension."""
    steps = as_tuple(strides)
    if len(steps) != len(dims):
        raise ProgramValueError(
            f"{construct} needs one stride a dimension",
            expected=f"{len(dims)} strides",
            found=str(len(steps)),
        )
    return steps


def _at_address(
    tracer: Tracer,
    address: Value,
    dims: tuple[Expr, ...],
    kind: DType,
    steps: tuple[Expr, ...] | None,
) -> BufferRef:
    tracer.require_launch("T.make_tensor of an address")
    expr = address.expr
    if expr.dtype != INT64:
        raise ProgramTypeError(
            "an address is an int64",
            expected="an element of T.Tensor((n,), T.ptr)",
            found=describe(address),
        )
    buffer = tracer.new_buffer(tracer.take_name("tensor"), dims, kind, "global", steps)
    tracer.emit_view(AddressView(buffer, expr, _table(tracer, expr)))
    return BufferRef(buffer)


def _table(tracer: Tracer, address: Expr) -> Buffer | None:
    """The tensor that an address was read from, also by way of names."""
    pending, seen = [address], set()
    while pending:
        for e in walk_expr(pending.pop()):
            if isinstance(e, Load) and not e.buffer.is_on_chip:
                return e.buffer
            if isinstance(e, Var) and e.id not in seen:
                seen.add(e.id)
                pending += [
                    s.value
                    for s in walk(tracer.open_statements())
                    if isinstance(s, Bind) and s.var.id == e.id
                ]
    return None
