"""Random pipelined programs: executors agree bit for bit, and most run in roles on Hopper.

``TILEOPS_RANDOM_PROGRAMS`` sets how many run in the simulation (20 by default); a tenth of them runs
on the CPU path and in the interpreter, and a third is compiled. ``TILEOPS_RANDOM_SEED`` is the
first one's seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tests.kit import harness
from tests.kit.schedules import schedules_of
from tests.property import test_programs
from tests.property.pipelined.drawn import drawn
from tileops.codegen import gpu, triton
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.ir.schedule import Release, Schedule
from tileops.ir.stmt import For, If
from tileops.ir.verifier import verify
from tileops.ir.walk import walk
from tileops.passes.hopper.check_schedule import THOROUGH
from tileops.target import parse_target
from tileops.testing.interpreter import interpret
from tileops.testing.simulation import simulate

COUNT = int(os.environ.get("TILEOPS_RANDOM_PROGRAMS", "20"))
FIRST = int(os.environ.get("TILEOPS_RANDOM_SEED", "0"))
BATCH = 10
ORDERS = 3
HOPPER = parse_target("cuda:sm_90")
FAST = Specialization(fast=True)
LEAST_SHARE = 0.8  # of the programs, that run in roles


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiles are small: more threads of torch would cost more than they do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, BATCH))
def test_every_order_of_the_roles_steps_gives_the_same(first: int) -> None:
    for seed in range(first, first + BATCH):
        own = drawn(seed)
        verify(own.program)
        expected = own.expected()
        for order in range(ORDERS):
            after = own.copies()
            simulate(own.program, *after, seed=order)
            own.require(after, expected)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(COUNT // 10, 1)))
def test_cpu(seed: int) -> None:
    own = drawn(seed)
    after = own.copies()
    harness.build(own.program)(*after)
    own.require(after, own.expected())


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(COUNT // 10, 1)))
def test_interpreter(seed: int) -> None:
    own = drawn(seed)
    after = own.copies()
    interpret(triton.generate(own.program, HOPPER, FAST), own.program, *after)
    own.require(after, own.expected())


@pytest.mark.parametrize("first", range(FIRST, FIRST + max(COUNT // 3, BATCH), BATCH))
def test_compiler(first: int) -> None:
    for seed in range(first, first + BATCH):
        code = gpu.generate(drawn(seed).program, HOPPER, FAST)
        compile_kernel(code, HOPPER, {})


def test_simulation_of_other_programs() -> None:
    """What the others are compared with: it gives what the evaluation of single elements gives."""
    for seed in range(FIRST, FIRST + 40):
        program, tensors, expected = test_programs.made(seed)
        simulate(program, *tensors)
        assert np.array_equal(tensors[-1].numpy(), expected), seed


# -- what is drawn -------------------------------------------------------------------------------
FORMS: dict[str, Callable[[Schedule], bool]] = {
    "one group": lambda s: s.groups == 1,
    "two groups": lambda s: s.groups == 2,
    "eight warps": lambda s: s.warps == 8,
    "persistent": lambda s: s.persistent,
    "not persistent": lambda s: not s.persistent,
    "longest first": lambda s: bool(s.backwards),
    "staged": lambda s: bool(s.staged),
    "not staged": lambda s: not s.staged,
    "late products": lambda s: any(isinstance(x, Release) and x.behind for x in walk(s.math)),
    "condition": lambda s: any(isinstance(x, If) for x in walk(s.load)),
    "segments": lambda s: sum(isinstance(x, For) for x in s.math) >= 2,
    "loops in loops": lambda s: any(
        isinstance(x, For) and any(isinstance(y, For) for y in walk(x.body)) for x in walk(s.load)
    ),
    **{f"depth {n}": lambda s, n=n: any(r.depth == n for r in s.rings) for n in (1, 2, 3, 4)},
    **{f"{n} rings": lambda s, n=n: len(s.rings) == n for n in (1, 2, 3)},
}


def test_most_programs_run_in_roles_of_every_form(
    record_property: Callable[[str, object], None],
) -> None:
    seeds = range(FIRST, FIRST + max(COUNT, 100))
    forms: Counter[str] = Counter()
    roles = 0
    for seed in seeds:
        program = drawn(seed).program
        (launch,) = gpu.generate(program, HOPPER, FAST).launches
        roles += launch.language == "gluon"
        for scheduled in schedules_of(program, program.name):
            forms.update(name for name, has in FORMS.items() if has(scheduled.schedule))
    share = roles / len(seeds)
    record_property("share of programs in roles", share)
    print(f"{roles} of {len(seeds)} programs run in roles: {dict(forms)}")
    assert share >= LEAST_SHARE
    assert set(forms) == set(FORMS)


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT // 2, BATCH))
def test_checker(first: int) -> None:
    for seed in range(first, first + BATCH):
        for scheduled in schedules_of(drawn(seed).program, f"seed {seed}"):
            assert scheduled.check(effort=THOROUGH) > 0
