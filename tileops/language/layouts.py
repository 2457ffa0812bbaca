"""Layouts: hints for tiles, and the places of a tensor's elements in its storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir.expr import Binary, Buffer, Const, Expr, Unary, Var
from tileops.ir.operators import ARITHMETIC, BITWISE
from tileops.ir.printer import print_expr
from tileops.ir.stmt import Placement
from tileops.ir.walk import substitute, walk_expr
from tileops.language.buffers import BufferRef
from tileops.language.operands import mapping_of
from tileops.language.tracer import Tracer, require_launch, require_tracer
from tileops.language.value import INT32, Value, as_int, as_tuple, describe, index_expr
from tileops.location import here

__all__ = ["Fragment", "Layout", "annotate_layout"]


@dataclass(eq=False, repr=False)
class Layout:
    """An index map: the place of the element at an index of ``shape``.

    ``forward_fn`` takes an index a dimension and gives one index or several.
    """

    shape: Any
    forward_fn: object

    def __post_init__(self) -> None:
        self.shape = as_tuple(self.shape)


@dataclass(eq=False, repr=False)
class Fragment(Layout):
    """An index map that also names threads: a hint for the places of a fragment's elements."""

    forward_fn: object = None
    forward_thread_fn: object = None
    replicate: int = 1
    forward_index_fn: object = None


def annotate_layout(layout_map: Mapping[BufferRef, object]) -> None:
    """Layouts of buffers: a hint for one on chip; for a tensor, how this launch finds its elements.

    The storage of a tensor is a row-major box of the extents that the layout's indices have. The
    map must take each element to a place of its own and fill the box: a compiled program is refused
    otherwise. Tensors that cannot have one raise UnsupportedConstructError.
    """
    tracer = require_tracer("T.annotate_layout")
    tracer.require_launch("T.annotate_layout")
    given = mapping_of("T.annotate_layout", "layout_map", layout_map)
    for buffer, layout in given.items():
        if not isinstance(buffer, BufferRef):
            raise ProgramTypeError(
                "T.annotate_layout maps buffers to layouts", found=describe(buffer)
            )
        if buffer.node.scope == "global":
            _place(tracer, buffer, layout)


def note_run(construct: str, buffer: Buffer) -> None:
    """Remember that ``construct`` takes neighbouring elements of ``buffer`` for neighbours.

    UnsupportedConstructError if a layout may part them.
    """
    state = require_launch(construct)
    state.runs[buffer] = construct
    _check_run(buffer, construct, placed=buffer in state.placements)


def _check_run(buffer: Buffer, construct: str, *, placed: bool) -> None:
    if placed:
        raise UnsupportedConstructError(
            f"{construct} on the tensor `{buffer.name}`, whose layout may part neighbouring "
            "elements; use T.atomic_add"
        )


def _place(tracer: Tracer, ref: BufferRef, layout: object) -> None:
    state, buffer = tracer.require_launch("T.annotate_layout"), ref.node
    _check_tensor(ref, layout)
    if callable(layout):
        layout = Layout(ref.shape, layout)
    if not isinstance(layout, Layout) or not callable(layout.forward_fn):
        raise ProgramTypeError(
            f"the layout of the tensor `{ref.name}` must be a T.Layout or a function of its "
            "indices",
            found=describe(layout),
        )
    _check_shape(ref, layout)
    names = [f"at{d}" for d in range(buffer.ndim)]
    known = state.placements.get(buffer)
    vars_ = tuple(tracer.new_var(n, INT32) for n in names) if known is None else known.vars
    given = layout.forward_fn(*map(Value, vars_))
    parts = as_tuple(given)
    indices = tuple(index_expr(p, f"an index of the layout of `{ref.name}`") for p in parts)
    for index in indices:
        _check_index(ref, index, vars_)
    placement = Placement(buffer, vars_, indices, loc=here())
    if known is not None and known != placement:
        raise ProgramValueError(f"the tensor `{ref.name}` has two layouts in one launch")
    state.placements[buffer] = placement
    _check_run(buffer, state.runs.get(buffer, ""), placed=buffer in state.runs)


def _check_tensor(ref: BufferRef, layout: object) -> None:
    what = f"T.annotate_layout of the tensor `{ref.name}`, "
    if isinstance(layout, Fragment):
        what += "by a T.Fragment, which names threads"
    elif ref.node.strides is not None:
        what += "which has strides of its own"
    elif ref.node.dtype.bits < 8:
        what += f"which holds two elements of {ref.node.dtype} a byte"
    else:
        return
    raise UnsupportedConstructError(what)


def _check_shape(ref: BufferRef, layout: Layout) -> None:
    same = len(layout.shape) == ref.ndim
    for own, given in zip(ref.shape, layout.shape, strict=False):
        if isinstance(own, int) and as_int(given) is not None:
            same = same and own == as_int(given)
    if not same:
        raise ProgramValueError(
            f"the layout of the tensor `{ref.name}` has another shape",
            expected=ref.describe(),
            found=f"({', '.join(map(str, layout.shape))})",
        )


def _check_index(ref: BufferRef, index: Expr, vars_: tuple[Var, ...]) -> None:
    """ProgramValueError for an index that is not int32 arithmetic on the element's indices."""
    own = {v.id for v in vars_}
    for e in walk_expr(index):
        match e:
            case Var(id=n):
                fits = n in own
            case Const() | Unary(op="neg"):
                fits = True
            case Binary(op=op):
                fits = op in (*ARITHMETIC, *BITWISE)
            case _:
                fits = False
        if not fits or e.dtype != INT32:
            shown = {v.id: Var(INT32, d, v.name) for d, v in enumerate(vars_)}
            raise ProgramValueError(
                f"the layout of the tensor `{ref.name}` must be int32 arithmetic on the indices "
                "of its elements and constants",
                found=print_expr(substitute(index, shown)),
            )
