"""The text of a program for a GPU: CUDA C++ for threads, roles on Hopper where they fit, Triton."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from tileops import settings
from tileops.codegen.cuda import with_threads
from tileops.codegen.foreign import with_foreign
from tileops.codegen.gluon import emit_roles
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.codegen.triton.module import Write, Written, generate_with, write_launch
from tileops.errors import UnsupportedConstructError
from tileops.ir.address_sizes import address_sizes
from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, Gemm, Launch
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.hopper import Choices, Unfit, check_schedule, schedule_launch
from tileops.passes.load_ahead import load_ahead
from tileops.passes.pipeline import applied
from tileops.target import Target

_HOPPER = 90
# Registers of a multiprocessor, and the most that a thread can have (CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability": the same from 8.0 on).
_REGISTERS, _MOST_REGISTERS = 65536, 255
# While one block waits for the tiles that it loads ahead, another one computes.
_BLOCKS = 2
# Pass configs that ask for a kernel without roles, and without TMA.
_SWITCHES = ("tl.disable_warp_specialized", "tl.disable_tma_lower")


def generate(program: Program, target: Target, spec: Specialization) -> KernelCode:
    """The text of a specialised program.

    UnsupportedConstructError for what neither form can express.
    """
    return _generate(_write, program, target, spec)


def _generate(write: Write, program: Program, target: Target, spec: Specialization) -> KernelCode:
    tiles = partial(generate_with, write, target=target, spec=spec)
    return with_foreign(partial(with_threads, tiles, target=target), program, spec)


def generate_plain(
    program: Program, target: Target, spec: Specialization, refused: str
) -> KernelCode:
    """The text without roles, for a program whose roles a compiler ``refused``."""
    return _generate(partial(_write, refused=refused), program, target, spec)


def _write(
    program: Program,
    launch: Launch,
    known: Context,
    spec: Specialization,
    entry: str,
    workspaces: int,
    refused: str | None = None,
) -> Written:
    """A launch in roles where it can have them and they are not ``refused``, else without."""
    aligned = address_sizes(program)
    if refused is None and _may_have_roles(program, launch, known.target, spec):
        try:
            limit, ranges = known.target.shared_limit, known.ranges(program, launch)
            schedule = schedule_launch(program, launch, ranges, aligned, limit)
            if settings.current().verify_ir:
                check_schedule(schedule, launch, ranges, limit, entry)
            return emit_roles(program, launch, schedule, known.target, spec, entry)
        except Unfit as unfit:
            if Choices.of(dict(program.options)).path == "roles":
                raise UnsupportedConstructError(
                    f"{entry} has no form in roles: {unfit.reason}", location=unfit.loc
                ) from None
            line = "" if unfit.loc is None else f"line {unfit.loc.line}: "
            refused = f"{line}{unfit.reason}"
    given = launch
    if known.target.kind == "cuda":  # for AMD, Triton itself takes such loads through registers
        ahead, launch = load_ahead(program, launch, aligned if spec.fast else None)
        if ahead is not program:
            program = applied(load_ahead.__name__, program, ahead)
    written = write_launch(program, launch, known, spec, entry, workspaces)
    if launch is not given:
        bound = _registers_of_a_thread(launch, written.launch.num_warps * known.target.warp_size)
        written = replace(written, launch=replace(written.launch, max_registers=bound))
    if refused is None:
        return written
    notes = (f"{entry}: Triton path: {refused}",)
    return replace(written, launch=replace(written.launch, notes=notes))


def _registers_of_a_thread(launch: Launch, threads: int) -> int:
    """How many leave room for a second block; 0 where the tiles that threads hold are too large."""
    bound = _REGISTERS // (_BLOCKS * threads) // 8 * 8
    tiles = (s.buffer for s in walk(launch.body) if isinstance(s, Alloc))
    held = sum(math.prod(t.static_shape() or ()) for t in tiles if t.scope == "fragment")
    return bound if bound < _MOST_REGISTERS and held <= bound * threads * 3 // 4 else 0


def _may_have_roles(program: Program, launch: Launch, target: Target, spec: Specialization) -> bool:
    if target.kind != "cuda" or target.capability != _HOPPER or not spec.fast or spec.index64:
        return False
    options = dict(program.options)
    if any(options.get(name, "false") != "false" for name in _SWITCHES):
        return False
    if Choices.of(options).path == "triton":
        return False
    return any(isinstance(s, Gemm) for s in walk(launch.body))
