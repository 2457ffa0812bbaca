"""Owns the way from traced programs and a call's arguments to the jobs of a campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tileops.autotuner.compilers import Compiled, CompileJob
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.codec import encode_program
from tileops.ir.program import Program
from tileops.ir.stmt import AddressView
from tileops.ir.walk import walk
from tileops.jit.compiling import Request
from tileops.jit.loadable import facts_of, found_in_cache
from tileops.op.spec import written_parameters
from tileops.target import Target


def is_movable(program: Program) -> bool:
    """Whether another process can run the program on copies of its arguments.

    False for one that uses bare addresses: they mean nothing elsewhere, so it is measured in this
    process. ArgumentError for one that writes through them: no copy keeps the caller's data safe.
    """
    raw = {p.name for p in program.tensors() if p.raw}
    views = [s for launch in program.launches for s in walk(launch.body)]
    addressed = [s for s in views if isinstance(s, AddressView)]
    if not raw and not addressed:
        return True
    tables = {s.table.id: s for s in addressed if s.table is not None}
    suspects = raw | {p.name for p in program.tensors() if p.buffer.id in tables}
    written = suspects & written_parameters(program)
    if written or any(s.table is None for s in addressed):
        names = ", ".join(sorted(written)) or "an address that no tensor holds"
        raise ArgumentError(
            f"{program.name} cannot be tuned on copies: it may write to memory at addresses "
            f"({names}); give its configuration instead"
        )
    return False


def prepare(
    programs: Sequence[Program],
    target: Target,
    arguments: Sequence[Any],
    *,
    op: str,
    sizes: Mapping[str, int] | None = None,
    script: str | None = None,
) -> tuple[list[CompileJob], dict[int, Compiled]]:
    """One job a program, and by number those that the cache holds already.

    ``programs`` are one program under several configs, without size constants; ``arguments`` are
    those of a call (tensors, scalars) and decide the facts that code may assume. ``op``, ``sizes``
    and ``script`` are as in a compile request. Raises what a call with these arguments raises, and
    ArgumentError for programs that cannot be tuned (see ``is_movable``).
    """
    jobs: list[CompileJob] = []
    known: dict[int, Compiled] = {}
    if not programs:
        return jobs, known
    try:
        facts = facts_of(programs[0], arguments)
    except (ArgumentError, ArgumentTypeError) as error:
        # It names the program by its content.
        raise type(error)(f"op {op}: {str(error).partition(': ')[2]}") from error
    for number, program in enumerate(programs):
        request = Request(
            program=program,
            target=target,
            spec=facts,
            op=op,
            why="tuning",
            sizes=dict(sizes or {}),
            script=script,
        )
        found = found_in_cache(request)
        if found is not None:
            known[number] = Compiled("ok", hash=found[0], loadable=found[1])
        jobs.append(
            CompileJob(
                program=encode_program(program),
                target=str(target),
                fast=facts.fast,
                index64=facts.index64,
                op=op,
                sizes=tuple((sizes or {}).items()),
                script=script,
                movable=is_movable(program),
            )
        )
    return jobs, known
