"""Owns tensors at addresses: T.ptr parameters, tables of pointers and T.make_tensor."""

from __future__ import annotations

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.stmt import AddressView, Bind, View
from tileops.ir.walk import walk, walk_expr
from tileops.language.buffers import BufferRef, DataPointer, refuse_strided_view
from tileops.language.shapes import check_packed, static_shape
from tileops.language.tracer import Tracer, require_tracer
from tileops.language.value import Value, as_dtype, describe, index_expr

ADDRESS = DType("int64")


class PointerType:
    """``T.ptr``: as a parameter's annotation any tensor, whose address alone is taken.

    As a dtype, ``T.Tensor((n,), T.ptr)``, it makes a table of addresses: an int64 tensor.
    """

    def __call__(
        self, dtype: object = None, storage_scope: str = "global", *, is_size_var: bool = False
    ) -> PointerType:
        """The same; the element type is what T.make_tensor says. ProgramTypeError off global."""
        if storage_scope != "global":
            raise ProgramTypeError("T.ptr points to global memory", found=repr(storage_scope))
        return self

    def __repr__(self) -> str:
        return "T.ptr"


ptr = PointerType()


class Pointer:
    """A T.ptr parameter in a program: T.make_tensor gives it a shape and a dtype."""

    def __init__(self, node: Buffer) -> None:
        self.node = node

    @property
    def data(self) -> DataPointer:
        return DataPointer(self.node)

    def describe(self) -> str:
        """The parameter, for error messages."""
        return f"the pointer `{self.node.name}`, which has no shape (use T.make_tensor)"

    def __getitem__(self, key: object) -> object:
        raise ProgramTypeError(f"cannot index {self.describe()}")

    def __setitem__(self, key: object, value: object) -> None:
        raise ProgramTypeError(f"cannot store to {self.describe()}")


def make_tensor(
    ptr: object, shape: object, dtype: object = "float32", strides: object = None
) -> BufferRef:
    """The tensor of ``shape`` and ``dtype`` at a pointer: row-major, or with ``strides``.

    ``ptr`` is a T.ptr parameter, the ``.data`` of a buffer, or an int64 value that holds an
    address, such as an element of a table. Strides count elements. What lies at the address is not
    checked: it must be memory of the device that stays alive until the kernel has run.
    """
    tracer = require_tracer("T.make_tensor")
    kind = as_dtype(dtype)
    dims = static_shape("T.make_tensor", shape)
    steps = _strides(dims, strides)
    check_packed("T.make_tensor", dims, kind, steps)
    if isinstance(ptr, Value):
        return _at_address(tracer, ptr, dims, kind, steps)
    if not isinstance(ptr, (Pointer, DataPointer)):
        raise ProgramTypeError(
            "T.make_tensor takes a pointer",
            expected="a T.ptr parameter, the .data of a buffer, or an int64 address",
            found=describe(ptr),
        )
    source = ptr.node if isinstance(ptr, Pointer) else ptr.source
    refuse_strided_view("T.make_tensor", source)
    buffer = tracer.new_buffer(tracer.take_name("tensor"), dims, kind, source.scope, steps)
    view = View(buffer, source)
    if tracer.launch is None:
        tracer.pending_views.append(view)
    else:
        tracer.emit_view(view)
    return BufferRef(buffer)


def _strides(dims: tuple[Expr, ...], strides: object) -> tuple[Expr, ...] | None:
    if strides is None:
        return None
    steps = tuple(strides) if isinstance(strides, (tuple, list)) else (strides,)
    if len(steps) != len(dims):
        raise ProgramValueError(
            "T.make_tensor needs one stride a dimension",
            expected=f"{len(dims)} strides",
            found=str(len(steps)),
        )
    return tuple(index_expr(s, "a stride of T.make_tensor") for s in steps)


def _at_address(
    tracer: Tracer,
    address: Value,
    dims: tuple[Expr, ...],
    kind: DType,
    steps: tuple[Expr, ...] | None,
) -> BufferRef:
    tracer.require_launch("T.make_tensor of an address")
    expr = address.expr
    if expr.dtype != ADDRESS:
        raise ProgramTypeError(
            "an address is an int64",
            expected="an element of T.Tensor((n,), T.ptr)",
            found=describe(address),
        )
    buffer = tracer.new_buffer(tracer.take_name("tensor"), dims, kind, "global", steps)
    tracer.emit_address_view(AddressView(buffer, expr, _table(tracer, expr)))
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
