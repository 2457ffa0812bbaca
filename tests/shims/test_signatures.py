"""Constructs take the arguments that programs give them, by name and by position."""

from __future__ import annotations

import inspect

import pytest

import tileops.language as T

# Construct to its parameters in order; after "*" they are given by name alone.
_TEXT = """
Kernel(*blocks, threads, prelude)
StridedTensor(shape, strides, dtype, scope)
const(name, dtype)
dynamic(name, dtype)
symbolic(name, dtype)
get_block_binding(dim)
assume(cond)
alloc_shared(shape, dtype, scope)
alloc_fragment(shape, dtype, scope)
alloc_local(shape, dtype, scope)
alloc_global(shape, dtype, scope)
alloc_reducer(shape, dtype, op, replication)
copy(src, dst, *, coalesced_width, disable_tma, eviction_policy, prefer_instruction, annotations, loop_layout)
fill(buffer, value, annotations)
clear(buffer)
transpose(src, dst, annotations)
reshape(src, shape)
view(src, shape, dtype)
im2col(img, col, nhw_step, c_step, kernel, stride, dilation, pad, eviction_policy, annotations)
index_to_coordinates(index, shape)
gemm(A, B, C, transpose_A, transpose_B, policy, clear_accum, k_pack, mbar, annotations)
reduce_sum(buffer, out, dim, clear, batch, annotations)
reduce_max(buffer, out, dim, clear, batch, nan_propagate, annotations)
reduce_min(buffer, out, dim, clear, batch, nan_propagate, annotations)
reduce_absmax(buffer, out, dim, clear, batch, nan_propagate, annotations)
reduce_abssum(buffer, out, dim, batch, annotations)
reduce_bitand(buffer, out, dim, clear, batch, annotations)
reduce_bitor(buffer, out, dim, clear, batch, annotations)
reduce_bitxor(buffer, out, dim, clear, batch, annotations)
cumsum(src, dst, dim, reverse, annotations)
cummax(src, dst, dim, reverse, annotations)
finalize_reducer(reducer, dst, batch, annotations)
reducer_init(reducer, init)
reducer_update(acc, value)
any_of(buffer)
all_of(buffer)
Parallel(*extents, coalesced_width, loop_layout, prefer_async, annotations)
Pipelined(start, stop, num_stages, order, stage, sync, group, annotations)
serial(start, stop, step, *, annotations)
unroll(start, stop, step, *, explicit, unroll_factor, annotations)
vectorized(start, stop, *, annotations)
grid(*extents)
Persistent(domain, wave_size, index, group_size)
PersistentTileScheduler(num_m, num_n, num_workers, swizzle_size, column_major, cluster_size, stateful, name)
if_then_else(cond, a, b)
Select(cond, a, b)
device_assert(cond, msg, no_stack_info)
print(obj, msg, warp_group_id, warp_id)
loop_break()
ceildiv(a, b)
cast(value, dtype, round, sat, rbits)
Cast(dtype, value)
reinterpret(value, dtype)
round(x, rounding_mode)
infinity(dtype)
clamp(dst, min_val, max_val)
atomic_add(dst, value, memory_order, return_prev, use_tma, annotations)
atomic_max(dst, value, memory_order, return_prev, annotations)
atomic_min(dst, value, memory_order, return_prev, annotations)
atomic_load(src, memory_order)
use_swizzle(panel_size, order, enable)
annotate_layout(layout_map)
annotate_safe_value(safe_values)
Layout(shape, forward_fn)
Fragment(shape, forward_fn, forward_thread_fn, replicate, forward_index_fn)
get_thread_binding(dim)
sync_threads(barrier_id, arrive_count)
"""
SIGNATURES = _TEXT.strip().split("\n")


def _expected(text: str) -> tuple[str, list[str]]:
    name, _, rest = text.rstrip(")").partition("(")
    return name, [part for part in rest.split(", ") if part]


@pytest.mark.parametrize("text", SIGNATURES, ids=lambda text: text.partition("(")[0])
def test_parameters(text: str) -> None:
    name, expected = _expected(text)
    parameters = inspect.signature(getattr(T, name)).parameters
    positional: list[str] = []
    by_name_alone = False
    for part in expected:
        if part.startswith("*"):
            by_name_alone = True
            if len(part) > 1:
                assert parameters[part[1:]].kind is inspect.Parameter.VAR_POSITIONAL
            continue
        assert part in parameters, f"T.{name} has no argument {part}"
        if not by_name_alone:
            positional.append(part)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    found = [p.name for p in parameters.values() if p.kind in kinds]
    assert found[: len(positional)] == positional
