"""The text of ``kernel.py``: one Triton function per launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tileops.codegen.kernel_code import KernelCode, LaunchCode, Specialization
from tileops.codegen.triton.device_functions import function_lines
from tileops.codegen.triton.elements import load_element
from tileops.codegen.triton.grid import emit_block_vars, flat_grid
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.state import LaunchState
from tileops.codegen.triton.statements import emit_body
from tileops.codegen.triton.storage import NeedsMemory
from tileops.codegen.triton.writer import entry_name
from tileops.errors import InternalError
from tileops.ir.expr import Buffer
from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, Launch
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.pipeline import TRITON, run
from tileops.target import Target

Lines = list[tuple[str, int | None]]


@dataclass(frozen=True)
class Written:
    """One launch as text.

    ``lines`` have the numbers of their statements. ``workspaces`` are global buffers beyond the
    program's own. The head of the text needs ``helpers``, ``stages`` and ``imports``, which
    are blocks of lines.
    """

    lines: Lines
    launch: LaunchCode
    workspaces: tuple[Buffer, ...] = ()
    helpers: frozenset[str] = frozenset()
    stages: frozenset[int] = frozenset()
    imports: tuple[str, ...] = ()


# Writes a launch under an entry's name; the last argument counts the workspaces before its own.
Write = Callable[[Program, Launch, Context, Specialization, str, int], Written]


def generate(program: Program, target: Target, spec: Specialization) -> KernelCode:
    """The Triton text of a specialised program.

    UnsupportedConstructError for what it cannot express.
    """
    return generate_with(write_launch, program, target, spec)


def generate_with(
    write: Write, program: Program, target: Target, spec: Specialization
) -> KernelCode:
    """The text of a specialised program, each launch as ``write`` has it."""
    known, own = Context(target), len(program.workspaces)
    program = run(TRITON, program, known)
    workspaces = list(program.workspaces[own:])  # those that passes added
    written: list[Written] = []
    for launch in program.launches:
        entry = entry_name(program.name)
        if len(program.launches) > 1:
            entry = f"{entry}_{len(written)}"
        made = write(program, launch, known, spec, entry, own + len(workspaces))
        workspaces += made.workspaces
        written.append(made)
    lines: Lines = [(text, None) for text in _head(program, written)]
    lines += [line for made in written for line in made.lines]
    statements = {n: number for n, (_, number) in enumerate(lines, 1) if number is not None}
    source = "\n".join(text for text, _ in lines) + "\n"
    launches = tuple(made.launch for made in written)
    return KernelCode("triton", source, launches, statements, tuple(workspaces))


def write_launch(
    program: Program,
    launch: Launch,
    known: Context,
    spec: Specialization,
    entry: str,
    workspaces: int,
) -> Written:
    """A launch as one Triton function."""
    state = _emitted(program, launch, known, spec)
    params = state.params.finish(state.memory.params(workspaces))
    signature = f"def {entry}({', '.join(p.name for p in params)}):"
    lines: Lines = [("", None), ("", None), ("@triton.jit", None), (signature, launch.origin)]
    allocs = [s.buffer for s in walk(launch.body) if isinstance(s, Alloc)]
    described = LaunchCode(
        entry,
        params,
        flat_grid(launch),
        num_warps(launch.threads, known.target.warp_size),
        max(state.stages, default=1),
        shared_buffers=tuple(b for b in allocs if b.scope == "shared"),
    )
    return Written(
        lines + state.writer.finish(),
        described,
        tuple(state.memory.workspaces(flat_grid(launch))),
        frozenset(state.helpers),
        frozenset(state.stages),
    )


def num_warps(threads: int, warp_size: int = 32) -> int:
    """Warps of a block: the largest power of two within its threads, at most 16."""
    warps = max(1, -(-threads // warp_size))
    return min(16, 1 << (warps.bit_length() - 1))


def _emitted(program: Program, launch: Launch, known: Context, spec: Specialization) -> LaunchState:
    """The launch written, and anew each time that a buffer turns out to belong in memory."""
    in_memory: Ids = frozenset()
    while True:
        state = LaunchState(program, launch, known, spec, load_element, emit_body, in_memory)
        try:
            state.memory.emit_slices(emit_block_vars(state))
            emit_body(state, launch.body, frozenset())
        except NeedsMemory as request:
            if request.root in in_memory:
                raise InternalError(f"codegen: memory cannot hold buffer {request}") from None
            in_memory |= {request.root}
            continue
        return state


def _head(program: Program, written: list[Written]) -> list[str]:
    helpers = frozenset[str]().union(*(made.helpers for made in written))
    stages = frozenset[int]().union(*(made.stages for made in written))
    imports = dict.fromkeys(block for made in written for block in made.imports)
    lines = [f'"""Triton kernels of the program {program.name}."""', ""]
    lines += ["import triton", "import triton.language as tl"]
    lines += [line for block in imports for line in block.splitlines()]
    if "libdevice" in helpers:
        lines.append("from triton.language.extra import libdevice")
    if stages:
        lines.append("")
        lines += [f"STAGES_{n} = tl.constexpr({n})" for n in sorted(stages)]
    return lines + function_lines(set(helpers))
