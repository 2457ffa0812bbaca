"""Constructs that change no result: hints, assumptions, assertions and prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tileops.errors import ArgumentError, ArgumentTypeError, ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Expr, Region
from tileops.ir.stmt import Assert, Assume, Print
from tileops.language.buffers import BufferRef, Element, RegionRef
from tileops.language.operands import items_of, mapping_of, one_of, text_of, tile
from tileops.language.tracer import require_launch, require_tracer, tracer_in_launch
from tileops.language.value import as_int, describe, named, to_expr
from tileops.location import printable
from tileops.pass_configs import options_of

__all__ = [
    "annotate_compile_flags", "annotate_consumer_reg_alloc", "annotate_l2_hit_ratio",
    "annotate_min_blocks_per_sm", "annotate_pass_configs", "annotate_producer_reg_dealloc",
    "annotate_restrict_buffers", "annotate_safe_value", "assume", "device_assert",
    "disable_warp_group_reg_alloc", "no_set_max_nreg", "pdl_sync", "pdl_trigger", "use_swizzle",
]  # fmt: skip

_ORDERS = ("row", "column", "mlx")


def use_swizzle(panel_size: object, order: str = "row", enable: bool = True) -> None:
    """Walk the grid in panels of ``panel_size`` for locality in L2; results do not change."""
    state = require_launch("T.use_swizzle")
    width = as_int(panel_size)
    if width is None or width < 0:
        raise ProgramValueError(
            "T.use_swizzle: panel_size must be a positive int", found=describe(panel_size)
        )
    one_of("T.use_swizzle", "order", order, _ORDERS)
    if enable and width > 0:
        state.attrs["swizzle"] = f"{width}:{order}"


def annotate_safe_value(safe_values: Mapping[BufferRef, object]) -> None:
    """What out-of-bounds reads of a global buffer give instead of 0, in the whole launch."""
    state = require_launch("T.annotate_safe_value")
    given = mapping_of("T.annotate_safe_value", "safe_values", safe_values)
    for buffer, value in given.items():
        if not isinstance(buffer, BufferRef):
            raise ProgramTypeError(
                "T.annotate_safe_value maps buffers to values", found=describe(buffer)
            )
        state.safe_values[buffer.node] = fold.cast(
            to_expr(value, "a safe value"), buffer.node.dtype
        )


def annotate_min_blocks_per_sm(n: object) -> None:
    """How many blocks should fit on one multiprocessor."""
    state = require_launch("T.annotate_min_blocks_per_sm")
    count = as_int(n)
    if count is None or count < 1:
        raise ProgramValueError("T.annotate_min_blocks_per_sm needs a positive int")
    state.attrs["min_blocks"] = str(count)


def annotate_l2_hit_ratio(ratios: object) -> None:
    """How much of a buffer should stay in L2; ignored."""
    require_tracer("T.annotate_l2_hit_ratio")


def annotate_restrict_buffers(*buffers: object) -> None:
    """A promise that buffers do not overlap; ignored."""
    require_tracer("T.annotate_restrict_buffers")


def annotate_producer_reg_dealloc(n: int = 24) -> None:
    """A register hint; ignored."""
    require_tracer("T.annotate_producer_reg_dealloc")


def annotate_consumer_reg_alloc(n: int = 240) -> None:
    """A register hint; ignored."""
    require_tracer("T.annotate_consumer_reg_alloc")


def _ignored(name: str, text: str) -> Callable[[], None]:
    def function() -> None:
        require_tracer(f"T.{name}")

    return named(name, text, function)


disable_warp_group_reg_alloc = _ignored("disable_warp_group_reg_alloc", "A register hint; ignored.")
no_set_max_nreg = _ignored("no_set_max_nreg", "A register hint; ignored.")
pdl_sync = _ignored("pdl_sync", "Wait for the previous launch. Launches do not overlap: ignored.")
pdl_trigger = _ignored("pdl_trigger", "Let the next launch start early; a hint that is ignored.")


def annotate_pass_configs(configs: Mapping[object, object]) -> None:
    """Pass configs of this program; those given to the decorator win.

    ProgramValueError for an unknown key or value, as the decorator's ArgumentError.
    """
    tracer = require_tracer("T.annotate_pass_configs")
    try:
        options = options_of(mapping_of("T.annotate_pass_configs", "configs", configs))
    except (ArgumentError, ArgumentTypeError) as error:
        raise ProgramValueError(f"T.annotate_pass_configs: {error}") from None
    tracer.options.update(options)


def annotate_compile_flags(flags: str | Sequence[str]) -> None:
    """Extra compiler flags of this program, a string or a list of strings."""
    tracer = require_tracer("T.annotate_compile_flags")
    found = flags.split() if isinstance(flags, str) else flags
    words = map(str, items_of("T.annotate_compile_flags", "flags", found))
    tracer.options["compile_flags"] = " ".join(words)


# -- assumptions, assertions and prints ------------------------------------------------------------
def assume(cond: object) -> None:
    """Tell the compiler that ``cond`` holds; it is not checked."""
    tracer = require_tracer("T.assume")
    expr = fold.truth(to_expr(cond, "the assumption"))
    if tracer.launch is not None:
        tracer.emit(Assume(expr))


def device_assert(cond: object, msg: str = "", no_stack_info: bool = False) -> None:
    """Check ``cond`` when the kernel runs; a failure stops the kernel with ``msg``."""
    tracer = tracer_in_launch("T.device_assert")
    # The line is not part of the message: the statement carries its location, and printed IR must
    # not depend on the program's place in its file.
    tracer.emit(Assert(fold.truth(to_expr(cond, "the condition")), printable(str(msg))))


def print_values(
    obj: object = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0
) -> None:
    """Print a scalar, a buffer or only a message when the kernel runs."""
    tracer = tracer_in_launch("T.print")
    args: tuple[Expr | Region, ...] = ()
    if isinstance(obj, (BufferRef, RegionRef)):
        args = (tile("T.print", "what it shows", obj),)
    elif isinstance(obj, str):
        msg = msg or obj
    elif obj is not None:
        args = (to_expr(obj, "what T.print shows"),)
    if not msg and isinstance(obj, (BufferRef, Element)):
        msg = obj.ref.name if isinstance(obj, Element) else obj.name
    tracer.emit(Print(printable(text_of("T.print", "msg", msg)), args))
