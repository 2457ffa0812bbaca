"""The text of a schedule's steps: waits, signals, fetches and asynchronous products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tileops.codegen.triton.elements import extents_of, load_region
from tileops.codegen.triton.expressions import emit_condition, emit_expr
from tileops.codegen.triton.functions import converted
from tileops.codegen.triton.text import convert
from tileops.dtypes import INT32
from tileops.ir.expr import Region
from tileops.ir.program import const_value
from tileops.ir.schedule import (
    Acquire,
    Added,
    Advance,
    Await,
    Deposit,
    Fetch,
    Issue,
    Publish,
    Release,
    Settle,
    Share,
    Staged,
)
from tileops.ir.stmt import Stmt
from tileops.passes.hopper import Unfit

if TYPE_CHECKING:
    from tileops.codegen.gluon.state import RoleState


def _emit_acquire(state: RoleState, stmt: Acquire) -> None:
    ring, slot = stmt.ring, state.slot(stmt.ring)
    state.writer.line(f"mbarrier.wait({ring}_empty.index({slot}), ({state.parity(ring)}) ^ 1)")
    if not ring.is_exchange:
        state.writer.line(f"mbarrier.expect({ring}_full.index({slot}), {ring.bytes})")


def _emit_fetch(state: RoleState, stmt: Fetch) -> None:
    ring, slot = stmt.ring, state.slot(stmt.ring)
    place = [b.id for b in ring.buffers].index(stmt.dst.buffer.id)
    descriptor = state.maps.descriptor(ring.descriptors[place])
    state.writer.line(
        f"tma_load({descriptor}, {_coordinates(state, stmt.src)}, {ring}_full.index({slot}), "
        f"{state.maps.slots(stmt.dst.buffer)}.index({slot}))"
    )


def _coordinates(state: RoleState, region: Region) -> str:
    starts = [convert(emit_expr(state, start), INT32).text for start in region.starts]
    return f"[{', '.join(starts)}]"


def _emit_await(state: RoleState, stmt: Await) -> None:
    ring = stmt.ring
    state.writer.line(f"mbarrier.wait({ring}_full.index({state.slot(ring)}), {state.parity(ring)})")


def _emit_release(state: RoleState, stmt: Release) -> None:
    ring, known = stmt.ring, const_value(stmt.when)
    when = "" if known else f", pred={emit_condition(state, stmt.when).text}"
    state.writer.line(
        f"mbarrier.arrive({ring}_empty.index({state.slot(ring, stmt.behind)}), count=1{when})"
    )


def _emit_advance(state: RoleState, stmt: Advance) -> None:
    state.writer.line(f"{state.count(stmt.ring)} += 1")


def _emit_deposit(state: RoleState, stmt: Deposit) -> None:
    """The tile of this group to its part of the slot."""
    extents, dims = extents_of(state, stmt.src), stmt.src.squeezed()
    with state.nest([extents[d] for d in dims]) as vars_:
        value = converted(state, load_region(state, stmt.src, dims, vars_), stmt.dst.dtype)
    state.writer.line(f"{_part_text(state, stmt.dst)}.store({value.text})")


def _emit_publish(state: RoleState, stmt: Publish) -> None:
    """What was stored is seen by asynchronous products before the others know of it."""
    state.writer.line("hopper.fence_async_shared()")
    slot = state.slot(stmt.ring)
    state.writer.line(f"mbarrier.arrive({stmt.ring}_full.index({slot}), count=1)")


def _emit_issue(state: RoleState, stmt: Issue) -> None:
    a = _operand(state, stmt.a, stmt, transposed=stmt.transpose_a)
    b = _operand(state, stmt.b, stmt, transposed=stmt.transpose_b)
    acc = state.tile_name(stmt.c.buffer)
    fresh = ", use_acc=False" if const_value(stmt.clear) else ""
    line = f"{acc} = hopper.warpgroup_mma({a}, {b}, {acc}{fresh}, is_async=True)"
    state.writer.line(line)
    state.defined.add(stmt.c.buffer.id)


def _operand(state: RoleState, region: Region, stmt: Issue, *, transposed: bool) -> str:
    if region.buffer.id in state.fed:
        return _slot_text(state, region, stmt.behind, transposed=transposed)
    if region.buffer in state.schedule.shared:
        return _matrix(state.maps.tile(region.buffer), transposed=transposed)
    shape = stmt.c.static_extents()
    if shape is None:
        raise Unfit("a product with run-time extents", stmt.loc)
    laid = state.layouts.operand(shape, region.dtype.bits)
    return f"gl.convert_layout({state.tile_name(region.buffer)}, {laid})"


def _slot_text(state: RoleState, region: Region, behind: int, *, transposed: bool) -> str:
    """The matrix in a slot of a ring, or the part of it that ``region`` is."""
    return _matrix(_part_text(state, region, behind), transposed=transposed)


def _matrix(text: str, *, transposed: bool) -> str:
    return f"{text}.permute((1, 0))" if transposed else text


def _part_text(state: RoleState, region: Region, behind: int = 0) -> str:
    """The part of a slot that a region of its buffer is."""
    text, shape = state.slot_of(region.buffer, behind), region.buffer.static_shape() or ()
    dims = [d for d, extent in enumerate(shape) if extent != 1]
    for axis, dim in enumerate(dims):
        if region.extents[dim] != region.buffer.shape[dim]:
            start = emit_expr(state, region.starts[dim]).text
            text = f"{text}.slice({start}, {region.extents[dim]}, {axis})"
    return text


def _emit_share(state: RoleState, stmt: Share) -> None:
    state.writer.line(
        f"{state.maps.tile(stmt.dst.buffer)}.store({state.tile_name(stmt.src.buffer)})"
    )
    state.writer.line("hopper.fence_async_shared()")


def _emit_settle(state: RoleState, stmt: Settle) -> None:
    names = [state.tile_name(b) for b in stmt.results]
    deps = f"({', '.join(names)},)"
    state.writer.line(
        f"{', '.join(names)} = hopper.warpgroup_mma_wait({stmt.outstanding}, deps={deps})"
    )


def _emit_staged(state: RoleState, stmt: Staged) -> None:
    """A tile to shared memory, and from there to the tensor."""
    extents, dims = extents_of(state, stmt.src), stmt.src.squeezed()
    with state.nest([extents[d] for d in dims]) as vars_:
        value = converted(state, load_region(state, stmt.src, dims, vars_), stmt.dst.dtype)
    name = state.maps.staging(stmt.descriptor)
    if state.schedule.groups > 1:
        name += ".index(group)"
    shaped = name
    if len(stmt.descriptor.box) != len(dims):
        shaped = f"{name}.reshape({[extents[d] for d in dims]})"
    state.writer.line("tma.store_wait(0)")
    state.writer.line(f"{shaped}.store({value.text})")
    state.writer.line("hopper.fence_async_shared()")
    descriptor = state.maps.descriptor(stmt.descriptor)
    does = "tma_add" if isinstance(stmt, Added) else "tma_store"
    state.writer.line(f"{does}({descriptor}, {_coordinates(state, stmt.dst)}, {name})")


STEPS: dict[type[Stmt], Callable[[RoleState, Any], None]] = {
    Acquire: _emit_acquire,
    Fetch: _emit_fetch,
    Await: _emit_await,
    Release: _emit_release,
    Advance: _emit_advance,
    Share: _emit_share,
    Issue: _emit_issue,
    Settle: _emit_settle,
    Staged: _emit_staged,
    Added: _emit_staged,
    Deposit: _emit_deposit,
    Publish: _emit_publish,
}
