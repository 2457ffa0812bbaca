"""Owns the hints: constructs that may change speed but never results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    ProgramTypeError,
    ProgramValueError,
)
from tileops.ir import fold
from tileops.language.buffers import BufferRef
from tileops.language.operands import items_of, mapping_of
from tileops.language.tracer import require_tracer
from tileops.language.value import as_int, describe, to_expr
from tileops.pass_configs import options_of

_ORDERS = ("row", "column", "mlx")


def use_swizzle(panel_size: object, order: str = "row", enable: bool = True) -> None:
    """Walk the grid in panels of ``panel_size`` for locality in L2; results do not change."""
    state = require_tracer("T.use_swizzle").require_launch("T.use_swizzle")
    width = as_int(panel_size)
    if width is None or width < 0:
        raise ProgramValueError(
            "T.use_swizzle: panel_size must be a positive int", found=describe(panel_size)
        )
    if order not in _ORDERS:
        raise ProgramValueError(
            "T.use_swizzle: unknown order", expected=", ".join(_ORDERS), found=repr(order)
        )
    if enable and width > 0:
        state.attrs["swizzle"] = f"{width}:{order}"


def annotate_safe_value(safe_values: Mapping[BufferRef, object]) -> None:
    """What out-of-bounds reads of a global buffer give instead of 0, in the whole launch."""
    state = require_tracer("T.annotate_safe_value").require_launch("T.annotate_safe_value")
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
    state = require_tracer("T.annotate_min_blocks_per_sm").require_launch(
        "T.annotate_min_blocks_per_sm"
    )
    count = as_int(n)
    if count is None or count < 1:
        raise ProgramValueError("T.annotate_min_blocks_per_sm needs a positive int")
    state.attrs["min_blocks"] = str(count)


def _ignored(name: str) -> None:
    require_tracer(f"T.{name}")


def annotate_l2_hit_ratio(ratios: object) -> None:
    """How much of a buffer should stay in L2; ignored."""
    _ignored("annotate_l2_hit_ratio")


def annotate_restrict_buffers(*buffers: object) -> None:
    """A promise that buffers do not overlap; ignored."""
    _ignored("annotate_restrict_buffers")


def disable_warp_group_reg_alloc() -> None:
    """A register hint; ignored."""
    _ignored("disable_warp_group_reg_alloc")


def no_set_max_nreg() -> None:
    """A register hint; ignored."""
    _ignored("no_set_max_nreg")


def annotate_producer_reg_dealloc(n: int = 24) -> None:
    """A register hint; ignored."""
    _ignored("annotate_producer_reg_dealloc")


def annotate_consumer_reg_alloc(n: int = 240) -> None:
    """A register hint; ignored."""
    _ignored("annotate_consumer_reg_alloc")


def pdl_sync() -> None:
    """Wait for the launch before, where launches overlap; they do not, so nothing is recorded."""
    _ignored("pdl_sync")


def pdl_trigger() -> None:
    """Let the next launch start early; a hint that is ignored."""
    _ignored("pdl_trigger")


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


def ws(*warp_group_ids: int) -> AbstractContextManager[None]:
    """A body for given groups of warps. Without barriers its statements simply run in order."""
    require_tracer("T.ws").require_launch("T.ws")
    return nullcontext()
