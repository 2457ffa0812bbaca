"""Owns element access in both directions: the one place that tells global from on-chip buffers."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.triton import tensors, tiles
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.conversions import converted
from tileops.codegen.triton.text import Val, convert
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.program import const_value


def load_element(ctx: Context, load: Load) -> Val:
    """The value of ``load`` for every lane."""
    if ctx.memory.holds(load.buffer):
        return _load_memory(ctx, load)
    if load.buffer.is_on_chip:
        return tiles.load_tile(ctx, load.buffer, load.indices)
    return tensors.load_global(ctx, load.buffer, load.indices)


def _load_memory(ctx: Context, load: Load) -> Val:
    held = ctx.memory.held(load.buffer)
    ctx.memory.before_read(load.buffer)
    return convert(tensors.load_global(ctx, held, load.indices), load.buffer.dtype)


def store_element(ctx: Context, buffer: Buffer, indices: Sequence[Expr], value: Val) -> None:
    """Write ``value`` for every active lane."""
    if ctx.memory.holds(buffer):
        held = ctx.memory.held(buffer)
        value = convert(converted(ctx, value, buffer.dtype), held.dtype)
        tensors.store_global(ctx, held, indices, value, settle=True)
    elif buffer.is_on_chip:
        tiles.store_tile(ctx, buffer, indices, value)
    else:
        tensors.store_global(ctx, buffer, indices, converted(ctx, value, buffer.dtype))


def extents_of(ctx: Context, region: Region) -> tuple[int, ...]:
    """The extents of a region as integers; UnsupportedConstructError where one is not constant."""
    extents = region.static_extents()
    if extents is None:
        raise ctx.unsupported(
            f"a tile operation on `{region.buffer.name}` whose extents are not constants"
        )
    return extents


def load_region(ctx: Context, region: Region, dims: Sequence[int], vars_: Sequence[Var]) -> Val:
    """The elements of a region in the current space, ``vars_`` running along ``dims``."""
    return load_element(
        ctx, Load(region.dtype, region.buffer, fold.region_indices(region, dims, vars_))
    )


def is_one(expr: Expr) -> bool:
    """True for the constant 1."""
    return const_value(expr) == 1
