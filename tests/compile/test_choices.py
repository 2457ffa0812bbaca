"""What a user chooses of schedules: each choice is followed, or a reason says why not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import tileops
import tileops.language
from benchmarks.pairs import attention_backward
from tests.compile.test_roles import HOPPER, code_of, product, traced
from tests.kit.schedules import schedules_of
from tests.programs.typical import PROGRAMS
from tileops.cache import Key
from tileops.codegen.kernel_code import Specialization
from tileops.errors import UnsupportedConstructError
from tileops.ir.program import Program
from tileops.ir.schedule import Schedule, Settle, Staged
from tileops.ir.stmt import For, Parallel
from tileops.ir.walk import walk
from tileops.jit import compiling
from tileops.pass_configs import options_of


def chosen(program: Program, **choices: Any) -> Program:
    return replace(program, options=options_of({"tileops.schedule": choices}))


def schedule_of(name: str, **choices: Any) -> Schedule:
    (found,) = schedules_of(chosen(PROGRAMS[name](), **choices), name)
    found.check()
    return found.schedule


def note_of(program: Program) -> str:
    (launch,) = code_of(program).launches
    return launch.notes[0] if launch.notes else ""


@pytest.mark.parametrize("depth", [2, 3])
def test_depth(depth: int) -> None:
    assert {ring.depth for ring in schedule_of("matmul_relu", depth=depth).rings} == {depth}


def test_one_group_has_all_rows() -> None:
    assert schedule_of("matmul_relu").groups == 2
    own = schedule_of("matmul_relu", groups=1)
    assert (own.groups, own.first_row) == (1, None)


def test_blocks_that_stay_and_their_order() -> None:
    assert schedule_of("matmul_relu").persistent
    assert not schedule_of("matmul_relu", persistent=False).persistent
    assert schedule_of("attention_causal_odd", persistent=True).persistent
    assert schedule_of("attention_causal_odd").backwards
    assert not schedule_of("attention_causal_odd", longest_first=False).backwards


def test_results_that_leave_from_registers() -> None:
    own = schedule_of("matmul_relu", staged=False)
    assert not own.staged
    assert not any(isinstance(s, Staged) for s in walk(own.math))


def test_masks_and_products_of_a_loop() -> None:
    def masks(schedule: Schedule) -> list[int]:
        loops = (s for s in walk(schedule.math) if isinstance(s, For))
        return [sum(isinstance(s, Parallel) for s in loop.body) for loop in loops]

    default = schedule_of("attention_causal_odd")
    whole = schedule_of("attention_causal_odd", segments=False)
    assert len(set(masks(default))) == 2
    assert len(masks(whole)) == 1
    alone = schedule_of("attention_causal_odd", segments=False, overlap=False)
    # A late product has an iteration of its own before the loop.
    assert len(alone.math) < len(whole.math)


def test_the_path() -> None:
    program = traced(product(), "path")
    assert code_of(chosen(program, path="triton")).launches[0].language == "triton"
    assert code_of(chosen(program, path="roles")).launches[0].language == "gluon"
    odd = traced(product(size=250), "path_odd")
    with pytest.raises(UnsupportedConstructError, match="no form in roles: a stride of `A`"):
        code_of(chosen(odd, path="roles"))


def test_roles_that_the_rules_find_slower() -> None:
    few = traced(product(m=64, rows=48), "few_rows")
    assert "the product has 48 rows" in note_of(few)
    assert note_of(chosen(few, path="roles")).startswith("schedule")


@pytest.mark.parametrize(
    ("sizes", "choices", "reason"),
    [
        ({"m": 64}, {"groups": 2}, "groups=2: its rows make 1"),
        ({"m": 128, "n": 256}, {"depth": 8}, "depth=8: 2 slots fit"),
    ],
)
def test_what_cannot_be_followed_is_an_ordinary_kernel(
    sizes: dict[str, int], choices: dict[str, Any], reason: str
) -> None:
    program = chosen(traced(product(**sizes), f"followed_{min(choices)}"), **choices)
    assert re.search(rf"Triton path: line \d+: {reason}", note_of(program))


def test_choices_are_a_part_of_the_key() -> None:
    def key(**choices: Any) -> Key:
        program = tileops.jit(
            product(), name=f"keyed_{len(choices)}", pass_configs={"tileops.schedule": choices}
        ).get_tir()
        return compiling.key_of(
            compiling.Request(program, HOPPER, Specialization(fast=True), "keyed", "test")
        )

    assert key().hash() == key().hash() != key(groups=1).hash()
    assert '{\\"groups\\": 1}' in key(groups=1).fields["options"]


def backward() -> Program:
    sizes: dict[str, Any] = {"B": 1, "S": 256, "H": 1, "D": 128, "is_causal": False}
    program: Program = attention_backward.program(tileops.language, **sizes).program
    return program


def test_an_exchange_is_between_all_groups() -> None:
    code = code_of(chosen(backward(), groups=1))
    assert "groups=1: an operand is exchanged" in code.launches[1].notes[0]


def test_products_of_a_loop_one_by_one() -> None:
    (own,) = schedules_of(chosen(backward(), overlap=False), "backward")
    own.check()
    settles = [s for s in walk(own.schedule.math) if isinstance(s, Settle)]
    assert [s.outstanding for s in settles] == [0] * 5
    (fast,) = schedules_of(backward(), "backward")
    assert sum(isinstance(s, Settle) for s in walk(fast.schedule.math)) == 3
