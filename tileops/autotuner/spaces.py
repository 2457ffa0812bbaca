"""Spaces of configs: lists, functions, products and automatic ones, and their canonical text."""

from __future__ import annotations

import enum
import inspect
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import Alloc, Copy, For, Gemm
from tileops.ir.walk import walk
from tileops.optional_torch import torch
from tileops.pass_configs import SCHEDULE
from tileops.target import Target

# What a config may hold beside tunable parameters.
PASS_CONFIGS = "pass_configs"

Config = dict[str, Any]
Configs = Iterable[Mapping[str, Any]] | Callable[..., Any] | Mapping[str, Any] | str


@dataclass(frozen=True)
class Space:
    """All combinations of some choices that a condition allows; iterates over configs."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    where: Callable[..., object] | None = None

    def __iter__(self) -> Iterator[Config]:
        for values in itertools.product(*(choices for _, choices in self.axes)):
            config = {name: value for (name, _), value in zip(self.axes, values, strict=True)}
            try:
                is_allowed = self.where is None or self.where(**config)
            except Exception as error:
                raise ArgumentError(
                    f"space: where raised {type(error).__name__} for {describe(config)}: {error}"
                ) from error
            if is_allowed:
                yield config


def space(*, where: Callable[..., object] | None = None, **axes: Iterable[Any]) -> Space:
    """The configs with one choice an axis: ``space(block_M=[64, 128], num_stages=[2, 3])``.

    ``where`` takes every axis by keyword and keeps a config by returning true. ArgumentError for
    an axis without choices, or for no axis.
    """
    if not axes:
        raise ArgumentError("space: give at least one axis, such as block_M=[64, 128]")
    if where is not None and not callable(where):
        raise ArgumentTypeError(f"space: where: expected a function, got {where!r}")
    for name, values in axes.items():
        if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
            raise ArgumentTypeError(f"space: axis '{name}': expected choices, got {values!r}")
    fixed = tuple((name, tuple(choices)) for name, choices in axes.items())
    for name, choices in fixed:
        if not choices:
            raise ArgumentError(f"space: axis '{name}' has no choices")
    return Space(fixed, where)


def by_name(configs: Iterable[Config], default: Config | None) -> dict[str, Config]:
    """Each config once, whole, by its canonical text, and the default among them.

    A config that leaves out a parameter means its default, so two of them may be one.
    """
    found: dict[str, Config] = {}
    for config in configs:
        whole = {**(default or {}), **config}
        found.setdefault(canonical(whole), whole)
    if default is not None:
        found[canonical(default)] = default
    return found


def canonical(config: Mapping[str, Any]) -> str:
    """The one text of a config: same values, same text, in every process.

    ArgumentTypeError for a value other than a number, text, None, or a list of those.
    """
    try:
        return json.dumps(plain(config), sort_keys=True, separators=(",", ":"))
    except TypeError as error:
        raise ArgumentTypeError(f"config {dict(config)}: {error}") from None


def plain(value: object) -> Any:  # noqa: ANN401
    """A config's value as JSON has it: tuples are lists, keys and dtypes are text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, str):
        return str(value)  # a dtype of the language is a subclass of str
    raise TypeError(f"{value!r} cannot be kept in a file")


def listed(configs: Configs, names: Sequence[str], arguments: Sequence[Any]) -> list[Config]:
    """The configs as a list without repetitions.

    ``configs`` is a list of dicts, a Space, or a function of the call's ``arguments`` (tensors as
    ``("tensor", dtype, shape, stride)``) that returns one of these. A dict of lists is a product.
    ArgumentError for an empty list or a key that is none of ``names`` and not ``pass_configs``.
    """
    found: Any = configs
    if callable(found):
        found = _called(found, arguments)
    if isinstance(found, Mapping):
        axes = {str(n): v if isinstance(v, (list, tuple)) else (v,) for n, v in found.items()}
        found = Space(tuple((name, tuple(choices)) for name, choices in axes.items()))
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise ArgumentTypeError(f"configs: expected dicts, a space or a function, got {found!r}")
    unique: dict[str, Config] = {}
    for config in found:
        if not isinstance(config, Mapping):
            raise ArgumentTypeError(f"configs: expected dicts, got {config!r}")
        unknown = set(config) - set(names) - {PASS_CONFIGS}
        if unknown:
            raise ArgumentError(
                f"configs: '{min(map(str, unknown))}' is not a compile-time parameter of the "
                f"program ({', '.join(names) or 'it has none'})"
            )
        own = {name: _own_number(value) for name, value in config.items()}
        if not isinstance(options := own.get(PASS_CONFIGS), (Mapping, type(None))):
            raise ArgumentTypeError(
                f"configs: {PASS_CONFIGS}: expected a dict of options, got {options!r}"
            )
        unique.setdefault(canonical(own), own)
    if not unique:
        raise ArgumentError("configs: the space is empty")
    return list(unique.values())


def _own_number(value: Any) -> Any:  # noqa: ANN401
    """A number of numpy or torch as Python's own; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:  # noqa: ANN401
    parameters: Any = arguments
    with suppress(ValueError):  # nothing is known of a function that is not written in Python
        parameters = inspect.signature(function).parameters
    return function(*arguments) if parameters else function()


def describe(config: Mapping[str, Any]) -> str:
    """A config in one line for people."""
    return " ".join(f"{name}={value}" for name, value in config.items()) or "default"


# -- the automatic space ---------------------------------------------------------------------------
# A parameter is classed by what changes in the trace when it changes. Configs that cannot fit the
# target's shared memory, or whose fragments overflow the registers by far, are left out uncompiled.
LIMIT = 64  # configs at most
_TILES = (16, 32, 64, 128, 256)
_STAGES = (2, 3, 4)
_THREADS = (128, 256)
_HOPPER = 90
# Schedules to try with the default tiles where products may run in roles.
_SCHEDULES: tuple[dict[str, str | int | bool], ...] = (
    {"path": "triton"}, {"groups": 1}, {"persistent": True}, {"persistent": False},
    {"overlap": False},
)  # fmt: skip
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
    stmts = [stmt for launch in program.launches for stmt in walk(launch.body)]
    loops = [stmt for stmt in stmts if isinstance(stmt, For) and stmt.kind == "pipelined"]
    depth = {
        copy.dst.buffer.id: max(1, loop.stages)
        for loop in loops
        for copy in walk(loop.body)
        if isinstance(copy, Copy)
    }
    tiles: list[tuple[int, ...]] = []
    sizes = {"shared": 0, "fragment": 0}
    for buffer in (stmt.buffer for stmt in stmts if isinstance(stmt, Alloc)):
        if buffer.scope in sizes:
            tiles.append(tuple(int(const_value(extent) or 1) for extent in buffer.shape))
            count = depth.get(buffer.id, 1) if buffer.scope == "shared" else 1
            sizes[buffer.scope] += math.prod(tiles[-1]) * buffer.dtype.bytes * count
    stages = tuple(loop.stages for loop in loops)
    threads = tuple(launch.threads for launch in program.launches)
    return Needs(tuple(tiles), stages, threads, sizes["shared"], sizes["fragment"])


def fits(needs: Needs, target: Target) -> bool:
    """Whether a block can run on ``target``, as far as a count of bytes can tell."""
    if not target.is_gpu:
        return True
    if needs.fragment_bytes > _REGISTER_BYTES * max(needs.threads, default=128):
        return False
    return target.kind != "cuda" or needs.shared_bytes <= target.shared_limit


def automatic(
    trace: Callable[[Config], Program], defaults: Mapping[str, object], target: Target
) -> list[Config]:
    """The configs worth measuring, at most LIMIT; ``defaults`` are the integer parameters.

    On Hopper a program with products also has configs of other schedules. ArgumentError for a
    program whose tiles, stages and threads depend on no parameter, and without such configs.
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
    is_hopper = target.kind == "cuda" and target.capability == _HOPPER
    schedules = _SCHEDULES if has_gemm and is_hopper else ()
    if not axes and not schedules:
        raise ArgumentError(
            f"{program.name}: configs='auto' finds no parameter that its tiles, stages or threads "
            "depend on; give configs"
        )
    every = [{**base, **config} for config in Space(tuple(axes.items()))]
    every.sort(key=lambda config: _distance(config, base))
    found: list[Config] = []
    for config in every:
        # Not every combination is a program, whichever code says so.
        with suppress(Exception):
            if len(found) + len(schedules) < LIMIT and fits(needs_of(trace(config)), target):
                found.append(config)
    return found + [{**base, PASS_CONFIGS: {SCHEDULE: choices}} for choices in schedules]


def _choices(
    trace: Callable[[Config], Program],
    base: Mapping[str, int],
    name: str,
    value: int,
    before: Needs,
    has_gemm: bool,
) -> tuple[int, ...]:
    """The values to try of one parameter: its own alone where nothing depends on it."""
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
    """How far a config is from the default, in doublings: those near it come first."""
    return sum(abs(math.log2(max(v, 1) / max(base[n], 1))) for n, v in config.items())
