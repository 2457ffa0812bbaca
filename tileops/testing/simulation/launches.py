"""Launches and programs on the simulated device."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tileops.errors import ArgumentTypeError, UnsupportedConstructError
from tileops.ir.address_sizes import address_sizes
from tileops.ir.expr import Var
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.ir.schedule import Schedule
from tileops.ir.stmt import Gemm, Launch
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.hopper import Unfit, schedule_launch
from tileops.passes.pipeline import TRITON, run
from tileops.target import parse_target
from tileops.testing.simulation.control import Process
from tileops.testing.simulation.elements import Elements, Values, torch_dtype
from tileops.testing.simulation.multiprocessor import Multiprocessor, Runner
from tileops.testing.simulation.roles import Role
from tileops.testing.simulation.statements import garbage

_HOPPER = parse_target("cuda:sm_90")
_MOST_PROGRAMS = 4  # of a persistent launch
Argument = Values | int | float | bool


@dataclass
class Memory:
    """Global memory: tensors by the ids of their buffers, and the values of sizes and scalars."""

    tensors: dict[int, Values] = field(default_factory=dict)
    scalars: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, arguments: Sequence[Argument]) -> Memory:
        """The memory of a call. Its tensors are the caller's; those that the call makes are new."""
        memory, given = cls(), iter(arguments)
        for param in program.params:
            if isinstance(param, ScalarParam):
                memory.scalars[param.var.id] = next(given)
            elif not param.allocated:
                memory._bind(param, next(given))
        sizes = Elements({}, memory.scalars)
        made = [p.buffer for p in program.tensors() if p.allocated]
        for buffer in (*made, *program.workspaces):
            shape = [sizes.number(e) for e in buffer.shape]
            memory.tensors[buffer.id] = garbage(shape, buffer.dtype)
        return memory

    def _bind(self, param: TensorParam, tensor: Argument) -> None:
        buffer = param.buffer
        if not isinstance(tensor, Values):
            raise ArgumentTypeError(f"`{param.name}` is a tensor, got {type(tensor).__name__}")
        if param.leading:
            tensor = tensor.view(-1, *tensor.shape[tensor.ndim - buffer.ndim + 1 :])
        if param.raw or tensor.ndim != buffer.ndim or tensor.dtype != torch_dtype(buffer.dtype):
            raise UnsupportedConstructError(f"the simulation takes no `{param.text()}`")
        self.tensors[buffer.id] = tensor
        given = (*tensor.shape, *tensor.stride())
        for expr, number in zip((*buffer.shape, *(buffer.strides or ())), given, strict=False):
            if isinstance(expr, Var):
                self.scalars.setdefault(expr.id, number)


def run_plain(launch: Launch, memory: Memory) -> None:
    """Run a launch as it is written, block after block."""
    if launch.placements:
        raise UnsupportedConstructError("the simulation has no placed tensors", location=launch.loc)
    for block in _blocks(launch, memory):
        process = Process(memory.tensors, {**memory.scalars, **block})
        _take_safe_values(process, launch)
        for _ in process.body(launch.body):
            pass


def run_roles(launch: Launch, schedule: Schedule, memory: Memory, seed: int) -> None:
    """Run a launch in the roles of its schedule, whose steps come in an order that ``seed`` gives.

    passes.machine.events.Fault for a deadlock, or for a barrier that is left half way.
    """
    rng = random.Random(seed)
    blocks = [_turned(b, launch, schedule, memory) for b in _blocks(launch, memory)]
    count = rng.randint(1, _MOST_PROGRAMS) if schedule.persistent else len(blocks)
    programs = [blocks[n::count] for n in range(min(count, len(blocks)))]
    rng.shuffle(programs)
    for program in programs:
        machine = Multiprocessor(schedule, rng)
        runners = []
        for group in (None, *range(schedule.groups)):
            role = Role(schedule, machine, memory.tensors, memory.scalars, group)
            _take_safe_values(role, launch)
            runners.append(Runner(role.name, role.blocks(program)))
        machine.run(runners)


def simulate(program: Program, *arguments: Argument, seed: int | None = None) -> tuple[Values, ...]:
    """What a call of a program returns; tensors that it writes change in place.

    With a ``seed`` launches run in the roles that they have on Hopper, else as they are written.
    """
    known = Context(_HOPPER)
    if seed is not None:
        program = run(TRITON, program, known)
    memory = Memory.of(program, arguments)
    for launch in program.launches:
        schedule = None if seed is None else _schedule_of(program, launch, known)
        if seed is None or schedule is None:
            run_plain(launch, memory)
        else:
            run_roles(launch, schedule, memory, seed)
    params = [program.params[n] for n in program.returns]
    return tuple(memory.tensors[p.buffer.id] for p in params if isinstance(p, TensorParam))


def _schedule_of(program: Program, launch: Launch, known: Context) -> Schedule | None:
    """The schedule of a lowered launch; None where it does not run in roles."""
    if not any(isinstance(s, Gemm) for s in walk(launch.body)):
        return None
    ranges, limit = known.ranges(program, launch), known.target.shared_limit
    try:
        return schedule_launch(program, launch, ranges, address_sizes(program), limit)
    except Unfit:
        return None


def _blocks(launch: Launch, memory: Memory) -> Iterator[Mapping[int, int]]:
    """The numbers of all blocks; the first variable runs fastest."""
    sizes = Elements({}, memory.scalars)
    extents = [sizes.number(e) for e in launch.grid]
    for place in itertools.product(*(range(e) for e in reversed(extents))):
        yield {v.id: n for v, n in zip(launch.block_vars, reversed(place), strict=True)}


def _turned(
    block: Mapping[int, int], launch: Launch, schedule: Schedule, memory: Memory
) -> Mapping[int, int]:
    """The block in the place of ``block`` where a schedule counts down."""
    sizes = Elements({}, memory.scalars)
    return {
        v.id: sizes.number(e) - 1 - block[v.id] if v in schedule.backwards else block[v.id]
        for v, e in zip(launch.block_vars, launch.grid, strict=True)
    }


def _take_safe_values(process: Elements, launch: Launch) -> None:
    process.safe.update({b.id: process.value(v) for b, v in launch.safe_values})
