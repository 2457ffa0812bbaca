"""The text of ``kernel.py``: one Triton function per launch."""

from __future__ import annotations

from tileops.codegen.kernel_code import KernelCode, LaunchCode, Specialization
from tileops.codegen.triton.context import Context
from tileops.codegen.triton.device_functions import function_lines
from tileops.codegen.triton.elements import load_element
from tileops.codegen.triton.grid import emit_block_vars, flat_grid
from tileops.codegen.triton.liveness import Ids
from tileops.codegen.triton.statements import emit_body
from tileops.codegen.triton.storage import NeedsMemory
from tileops.codegen.triton.writer import entry_name
from tileops.errors import InternalError
from tileops.ir.program import Program
from tileops.ir.stmt import Alloc, Launch
from tileops.ir.walk import walk
from tileops.passes.context import Context as PassContext
from tileops.passes.pipeline import TRITON, run
from tileops.target import Target


def generate(program: Program, target: Target, spec: Specialization) -> KernelCode:
    """The Triton text of a specialised program; UnsupportedConstructError if there is none."""
    known, own = PassContext(target), len(program.workspaces)
    program = run(TRITON, program, known)
    launches: list[LaunchCode] = []
    workspaces = list(program.workspaces[own:])  # those that passes added
    helpers: set[str] = set()
    stages: set[int] = set()
    lines: list[tuple[str, int | None]] = []
    for launch in program.launches:
        ctx = _emitted(program, launch, known, spec)
        entry = entry_name(program.name)
        if len(program.launches) > 1:
            entry = f"{entry}_{len(launches)}"
        params = ctx.params.finish(ctx.memory.params(own + len(workspaces)))
        signature = f"def {entry}({', '.join(p.name for p in params)}):"
        lines += [("", None), ("", None), ("@triton.jit", None), (signature, launch.origin)]
        lines += ctx.writer.finish()
        allocs = [s.buffer for s in walk(launch.body) if isinstance(s, Alloc)]
        described = LaunchCode(
            entry,
            params,
            flat_grid(launch),
            num_warps(launch.threads, target.warp_size),
            max(ctx.stages, default=1),
            shared_buffers=tuple(b for b in allocs if b.scope == "shared"),
        )
        launches.append(described)
        workspaces += ctx.memory.workspaces(flat_grid(launch))
        helpers |= ctx.helpers
        stages |= ctx.stages
    lines = [*((text, None) for text in _head(program, helpers, stages)), *lines]
    statements = {n: number for n, (_, number) in enumerate(lines, 1) if number is not None}
    source = "\n".join(text for text, _ in lines) + "\n"
    return KernelCode("triton", source, tuple(launches), statements, tuple(workspaces))


def num_warps(threads: int, warp_size: int = 32) -> int:
    """Warps of a block: the largest power of two within its threads, at most 16."""
    warps = max(1, -(-threads // warp_size))
    return min(16, 1 << (warps.bit_length() - 1))


def _emitted(program: Program, launch: Launch, known: PassContext, spec: Specialization) -> Context:
    """The launch written, and anew each time that a buffer turns out to belong in memory."""
    in_memory: Ids = frozenset()
    while True:
        ctx = Context(program, launch, known, spec, load_element, emit_body, in_memory)
        try:
            ctx.memory.emit_slices(emit_block_vars(ctx))
            emit_body(ctx, launch.body, frozenset())
        except NeedsMemory as request:
            if request.root in in_memory:
                raise InternalError(f"codegen: memory cannot hold buffer {request}") from None
            in_memory |= {request.root}
            continue
        return ctx


def _head(program: Program, helpers: set[str], stages: set[int]) -> list[str]:
    lines = [f'"""Triton kernels of the program {program.name}."""', ""]
    lines += ["import triton", "import triton.language as tl"]
    if "libdevice" in helpers:
        lines.append("from triton.language.extra import libdevice")
    if stages:
        lines.append("")
        lines += [f"STAGES_{n} = tl.constexpr({n})" for n in sorted(stages)]
    return lines + function_lines(helpers)
