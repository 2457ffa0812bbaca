"""Programs with roles with one wrong step: every such step is found before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from tests.programs import explicit as programs
from tests.programs.family_case import randn
from tileops.errors import ProgramError
from tileops.ir import explicit, fold
from tileops.ir.node import Stmt
from tileops.ir.program import Program
from tileops.ir.stmt import Launch
from tileops.ir.walk import replace_stmts, walk
from tileops.passes.context import Context
from tileops.passes.explicit import order_roles
from tileops.target import parse_target


def half(*shape: int) -> torch.Tensor:
    return randn(*shape, dtype=torch.float16)


# Programs with loops that use each slot several times, and the steps that nothing waits for: to
# leave one out or to say it twice changes nothing.
PROGRAMS = {
    "bodies": (programs.matmul_in_bodies, (half(64, 320), half(320, 64)), set()),
    "branches": (
        programs.matmul_in_branches,
        (half(64, 320), half(64, 320)),
        {
            "arrive %empty.13[((ceildiv(K.2, 32) - 1) % 3)]",
            "named barrier 1 threads 128 waits True",  # of one group, which is in step anyway
            "end stores but 0",  # at the end of the block
        },
    ),
    "threads": (programs.matmul_of_threads, (half(64, 320), half(64, 320)), set()),
    "groups": (programs.matmul_in_groups, (half(64, 96), half(96, 64)), set()),
    "attention": (
        programs.attention_in_roles,
        tuple(half(1, 320, 1, 64) for _ in range(3)),
        set(),
    ),
    "halves": (
        programs.halves_of_columns,
        (half(64, 64), half(64, 256), half(256, 128)),
        set(),
    ),
    "handed over": (
        programs.handed_over,
        (randn(2048),),
        {"wait %done.5[0] parity 0"},  # the last statement of the block
    ),
}
STEPS = (
    explicit.BarrierArrive,
    explicit.BarrierWait,
    explicit.BarrierArriveAfterCopies,
    explicit.NamedBarrier,
    explicit.EndGemms,
    explicit.EndCopies,
    explicit.EndStores,
)


def mutations(step: Stmt) -> Iterator[tuple[str, tuple[Stmt, ...]]]:
    """What takes the place of a step, with a name."""
    yield "left out", ()
    match step:
        case explicit.BarrierWait():
            other = fold.sub(fold.const(1), step.parity)
            yield "of the other parity", (replace(step, parity=other),)
        case explicit.BarrierArrive():
            yield "twice", (step, step)
        case explicit.EndGemms() | explicit.EndCopies():
            yield "one too early", (replace(step, outstanding=step.outstanding + 1),)


def is_refused(program: Program, launch: Launch) -> bool:
    """True for an error that says where."""
    try:
        order_roles(replace(program, launches=(launch,)), Context(parse_target("cpu")))
    except ProgramError as error:
        return error.location is not None
    return False


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_wrong_step_is_found(name: str) -> None:
    impl, inputs, harmless = PROGRAMS[name]
    program = impl.get_tir(*inputs)
    (launch,) = program.launches
    assert not is_refused(program, launch)
    steps = [s for s in walk(launch.body) if isinstance(s, STEPS)]
    missed = [
        f"line {step.loc.line}: {step.text()}, {what}"
        for step in steps
        if step.text() not in harmless
        for what, made in mutations(step)
        if not is_refused(
            program,
            replace(
                launch,
                body=replace_stmts(
                    launch.body, lambda s, step=step, made=made: made if s is step else None
                ),
            ),
        )
    ]
    assert not missed, "\n".join(missed)
    assert harmless <= {s.text() for s in steps}
