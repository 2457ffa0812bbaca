"""Owns the automatic space: choices for what a program's tiles, stages and threads depend on.

A parameter is classed by what changes in the trace when it changes. Configs that cannot fit the
target's shared memory, or whose fragments overflow the registers by far, are left out uncompiled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tileops.autotuner.spaces import Config
from tileops.errors import ArgumentError
from tileops.ir.expr import Buffer
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Alloc, Copy, For, Gemm
from tileops.ir.walk import walk
from tileops.target import Target

LIMIT = 64  # configs at most
_TILES = (16, 32, 64, 128, 256)
_STAGES = (2, 3, 4)
_THREADS = (128, 256)
# 255 registers of 4 bytes a thread; a config may want half as much again, which spills a little.
_REGISTER_BYTES = 255 * 4 * 1.5


@dataclass(frozen=True)
class Needs:
    """What a traced program asks of a block.

    ``tiles`` are the shapes of on-chip buffers in order, ``stages`` those of pipelined loops.
    """

    tiles: tuple[tuple[int, ...], ...]
    stages: tuple[int, ...]
    threads: tuple[int, ...]
    shared_bytes: int
    fragment_bytes: int


def needs_of(program: Program) -> Needs:
    """What each block of ``program`` asks for; a pipeline's shared tiles count by stage."""
    tiles: list[tuple[int, ...]] = []
    stages: list[int] = []
    depth: dict[int, int] = {}
    shared: list[Buffer] = []
    fragment_bytes = 0
    for launch in program.launches:
        for stmt in walk(launch.body):
            if isinstance(stmt, Alloc) and stmt.buffer.scope in ("shared", "fragment"):
                tiles.append(_shape(stmt.buffer))
                if stmt.buffer.scope == "shared":
                    shared.append(stmt.buffer)
                else:
                    fragment_bytes += _bytes(stmt.buffer)
            elif isinstance(stmt, For) and stmt.kind == "pipelined":
                stages.append(stmt.stages)
                for inner in walk(stmt.body):
                    if isinstance(inner, Copy):
                        depth[inner.dst.buffer.id] = max(1, stmt.stages)
    total = sum(_bytes(b) * depth.get(b.id, 1) for b in shared)
    threads = tuple(launch.threads for launch in program.launches)
    return Needs(tuple(tiles), tuple(stages), threads, total, fragment_bytes)


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(const_value(extent) or 1) for extent in buffer.shape)


def _bytes(buffer: Buffer) -> int:
    count = 1
    for extent in _shape(buffer):
        count *= extent
    return count * buffer.dtype.bytes


def fits(needs: Needs, target: Target) -> bool:
    """Whether a block can run on ``target``, as far as a count of bytes can tell."""
    if not target.is_gpu:
        return True
    threads = max(needs.threads, default=128)
    if needs.fragment_bytes > _REGISTER_BYTES * threads:
        return False
    return target.kind != "cuda" or needs.shared_bytes <= target.shared_limit


def configs(
    trace: Callable[[Config], Program], defaults: Mapping[str, object], target: Target
) -> list[Config]:
    """The configs worth measuring, at most LIMIT; ``defaults`` are the integer parameters.

    ArgumentError for a program on whose tiles, stages and threads no parameter bears.
    """
    base = {name: value for name, value in defaults.items() if type(value) is int}
    program = trace(dict(base))
    has_gemm = any(isinstance(s, Gemm) for launch in program.launches for s in walk(launch.body))
    axes: dict[str, tuple[int, ...]] = {}
    for name, value in base.items():
        choices = _choices(trace, base, name, value, needs_of(program), has_gemm)
        if target.is_gpu or choices not in (_STAGES, _THREADS):
            axes[name] = choices  # a CPU has neither stages nor threads of a block
    axes = {name: choices for name, choices in axes.items() if len(choices) > 1}
    if not axes:
        raise ArgumentError(
            f"{program.name}: configs='auto' finds no parameter that its tiles, stages or threads "
            "depend on; give configs"
        )
    every = [
        {**base, **dict(zip(axes, values, strict=True))}
        for values in itertools.product(*axes.values())
    ]
    every.sort(key=lambda config: _distance(config, base))
    found: list[Config] = []
    for config in every:
        if len(found) == LIMIT:
            break
        try:
            if fits(needs_of(trace(config)), target):
                found.append(config)
        except Exception:  # not every combination is a program, whichever code says so
            continue
    return found


def _choices(
    trace: Callable[[Config], Program],
    base: Mapping[str, int],
    name: str,
    value: int,
    before: Needs,
    has_gemm: bool,
) -> tuple[int, ...]:
    """The values to try of one parameter: its own alone where it bears on none of these."""
    after = None
    for changed in (value + 1, value * 2) if value < 8 else (value * 2, value // 2):
        # The program's own code may refuse a value as it likes.
        with suppress(Exception):
            after = needs_of(trace({**base, name: changed}))
            break
    if after is None:
        return (value,)
    if after.stages != before.stages:
        return _STAGES
    if after.threads != before.threads:
        return _THREADS
    if after.tiles == before.tiles:
        return (value,)
    if has_gemm:
        return tuple(t for t in _TILES if value / 4 <= t <= value * 4)
    return tuple(max(1, t) for t in (value // 2, value, value * 2, value * 4))


def _distance(config: Mapping[str, int], base: Mapping[str, int]) -> float:
    """How far a config lies from the default, in doublings: those near it come first."""
    total = 0.0
    for name, value in config.items():
        total += abs(math.log2(max(value, 1) / max(base[name], 1)))
    return total
