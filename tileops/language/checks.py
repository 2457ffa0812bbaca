"""Owns the constructs for checking and looking: assume, device_assert, print."""

from __future__ import annotations

from tileops.ir import fold
from tileops.ir.expr import Expr, Region
from tileops.ir.stmt import Assert, Assume, Print
from tileops.language.buffers import BufferRef, Element, RegionRef
from tileops.language.operands import text_of, whole
from tileops.language.tracer import require_tracer
from tileops.language.value import to_expr
from tileops.location import printable


def assume(cond: object) -> None:
    """Tell the compiler that ``cond`` holds; it is not checked."""
    tracer = require_tracer("T.assume")
    expr = fold.truth(to_expr(cond, "the assumption"))
    if tracer.launch is not None:
        tracer.emit(Assume(expr))


def device_assert(cond: object, msg: str = "", no_stack_info: bool = False) -> None:
    """Check ``cond`` when the kernel runs; a failure stops the kernel with ``msg``."""
    tracer = require_tracer("T.device_assert")
    tracer.require_launch("T.device_assert")
    # The line is no part of the message: the statement carries its location, and printed IR must
    # not depend on where in a file the program stands.
    tracer.emit(Assert(fold.truth(to_expr(cond, "the condition")), printable(str(msg))))


def print_values(
    obj: object = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0
) -> None:
    """Print a scalar, a buffer or only a message when the kernel runs."""
    tracer = require_tracer("T.print")
    tracer.require_launch("T.print")
    args: tuple[Expr | Region, ...] = ()
    if isinstance(obj, BufferRef):
        args = (whole(obj),)
    elif isinstance(obj, RegionRef):
        args = (obj.region,)
    elif isinstance(obj, str):
        msg = msg or obj
    elif obj is not None:
        args = (to_expr(obj, "what T.print shows"),)
    if not msg and isinstance(obj, (BufferRef, Element)):
        msg = obj.ref.name if isinstance(obj, Element) else obj.name
    msg = printable(text_of("T.print", "msg", msg))
    tracer.emit(Print(msg, args))
