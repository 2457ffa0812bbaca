"""Schedules on an abstract multiprocessor: the generated ones are right, and no wrong one passes."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import tileops.language
from benchmarks.pair import all_pairs
from tests.compile import scheduled_programs
from tests.compile.schedule_mutations import Mutation, mutations
from tests.kit import goldens
from tests.kit.schedules import HOPPER, Scheduled, schedules_of
from tests.kit.traced import program_of, specialise
from tests.programs import cases, constructs, families, typical
from tileops import option
from tileops.codegen import gpu
from tileops.codegen.kernel_code import Specialization
from tileops.errors import InternalError
from tileops.frontend.trace import trace
from tileops.ir import fold
from tileops.ir.program import Program
from tileops.ir.schedule import Await, Release
from tileops.ir.stmt import For, If
from tileops.ir.walk import walk
from tileops.passes.hopper.check_schedule import THOROUGH

# The kinds of mutation that a schedule may survive, each with the reason;
# ``schedule_mutations`` proves it for each site.
HARMLESS = {
    "swapped waits": {"no step between the awaits", "in a loop that never runs"},
    "Release before its Settle": {
        "the settle ends no product on the slot",
        "in a loop that never runs",
        "in a deferred loop of one trip",
    },
    "dropped Await": {"in a loop that never runs"},
    "dropped Advance (math)": {"in a loop that never runs"},
    "doubled Advance (math)": {"in a loop that never runs"},
    "Settle without results": {"in a loop that never runs"},
    "turned `when`": {"in a loop that never runs"},
    "dropped Release": {"in a loop that never runs", "in a deferred loop of one trip"},
    "doubled Release": {"in a loop that never runs", "in a deferred loop of one trip"},
    "wrong `behind`": {"in a loop that never runs", "in a deferred loop of one trip"},
    "Settle of one less": {"in a loop that never runs", "in a deferred loop of one trip"},
}
KINDS = {
    "dropped Await", "dropped Acquire", "dropped Fetch", "dropped Release", "dropped Advance (load)",
    "dropped Advance (math)", "doubled Release", "doubled Advance (load)", "doubled Advance (math)",
    "doubled Fetch", "missing closing Release", "swapped waits", "wrong `behind`",
    "Release before its Settle", "Settle of one less", "Settle without results",
    "Fetch before its Acquire", "turned `when`", "ring depth in one role",
}  # fmt: skip
# Those of vectors in rings, of exchanges and of shared operands, which some programs of the pairs
# have.
KINDS_OF_PAIRS = {
    "dropped Share", "Share behind its Issue",
    "Release before a nest", "dropped Deposit", "dropped Publish", "Deposit before its Acquire",
    "Publish before its Deposit", "doubled Publish",
}  # fmt: skip


def _own(name: str) -> Program:
    return program_of(getattr(scheduled_programs, name), consts={})


def _typical() -> Iterator[tuple[str, Callable[[], Program]]]:
    yield from typical.PROGRAMS.items()


def _cases() -> Iterator[tuple[str, Callable[[], Program]]]:
    for case in cases.CASES:
        yield case.id, functools.partial(specialise, case.eager, case.inputs(), **case.options)


def _constructs() -> Iterator[tuple[str, Callable[[], Program]]]:
    for case in constructs.CONSTRUCTS:
        yield case.id, functools.partial(trace, case.func, name=case.id, static={}, consts={})
    for func in scheduled_programs.SCHEDULED:
        yield func.__name__, functools.partial(_own, func.__name__)


def _families() -> Iterator[tuple[str, Callable[[], Program]]]:
    for case in families.runnable("sm_90"):
        yield case.id, functools.partial(case.impl.get_tir, *case.inputs(), **case.options)


def _pairs() -> Iterator[tuple[str, Callable[[], Program]]]:
    def build(pair: Any) -> Program:
        program: Program = pair.build(tileops.language).program
        return program

    for _, pair in all_pairs():
        yield pair.name, functools.partial(build, pair)


SOURCES = {
    "typical": _typical,
    "cases": _cases,
    "constructs": _constructs,
    "families": _families,
    "pairs": _pairs,
}


@functools.cache
def schedules(source: str) -> tuple[Scheduled, ...]:
    """The schedules of a source's programs, one of those that differ in dtype alone."""
    torch.manual_seed(0)
    found: dict[str, Scheduled] = {}
    for name, make in SOURCES[source]():
        for scheduled in schedules_of(make(), name):
            found.setdefault(re.sub(r"\bb?f16\b", "half", scheduled.text()), scheduled)
    return tuple(found.values())


@pytest.mark.parametrize("source", SOURCES)
def test_every_schedule_is_right(source: str) -> None:
    for scheduled in schedules(source):
        assert scheduled.check(effort=THOROUGH) >= THOROUGH.worlds * THOROUGH.orders, scheduled.name


def test_schedules_of_every_form_are_checked() -> None:
    every = [s.schedule for source in SOURCES for s in schedules(source)]
    assert len(every) >= 50
    assert {s.groups for s in every} >= {1, 2}
    assert {s.persistent for s in every} == {False, True}
    forms = {
        "deferred": lambda s: any(isinstance(x, Release) and x.behind for x in walk(s.math)),
        "condition": lambda s: any(isinstance(x, If) for x in walk(s.load)),
        "nested": lambda s: any(
            isinstance(x, For) and any(isinstance(y, For) for y in walk(x.body))
            for x in walk(s.load)
        ),
        "backwards": lambda s: bool(s.backwards),
        "exchange": lambda s: any(ring.is_exchange for ring in s.rings),
        "segments": lambda s: sum(isinstance(x, For) for x in s.math) >= 2,
    }
    for form, has in forms.items():
        assert any(map(has, every)), form


def _passes(scheduled: Scheduled, mutation: Mutation) -> bool:
    """True if the checker finds nothing; it tries hard where a fault is expected."""
    try:
        scheduled.check(mutation.schedule)
        if not mutation.harmless:
            scheduled.check(mutation.schedule, THOROUGH)
    except InternalError:
        return False
    return True


@pytest.mark.parametrize("source", [s for s in SOURCES if s != "families"])
def test_no_mutation_survives(source: str) -> None:
    kinds: Counter[str] = Counter()
    for scheduled in schedules(source):
        for mutation in mutations(scheduled):
            what = f"{scheduled.name}: {mutation.kind}: {mutation.site}"
            if not _passes(scheduled, mutation):
                assert not mutation.harmless, f"{what}: caught, though {mutation.harmless}"
                kinds[mutation.kind] += 1
            else:
                assert mutation.harmless in HARMLESS.get(mutation.kind, ()), f"{what} survives"
    # The schedules of the constructs have one ring in each list.
    if source == "pairs":
        assert set(kinds) >= KINDS_OF_PAIRS
    assert KINDS - set(kinds) <= ({"swapped waits"} if source == "constructs" else set())
    print(f"{source}: {kinds.total()} mutations caught: {dict(kinds)}")


@pytest.mark.parametrize(
    ("name", "source", "program"),
    [
        ("matmul", "typical", "matmul_relu"),
        ("attention_causal", "typical", "attention_causal_odd"),
        ("tile_loop", "constructs", "tile_loop"),
    ],
)
def test_text_is_golden(name: str, source: str, program: str) -> None:
    (found,) = [s for s in schedules(source) if s.name == program]
    goldens.check("schedules", name, found.text())


@pytest.mark.parametrize("func", scheduled_programs.UNSCHEDULED, ids=lambda f: f.__name__)
def test_what_the_load_role_cannot_know_has_no_schedule(func: Any) -> None:
    program = _own(func.__name__)
    assert not list(schedules_of(program, func.__name__))
    code = gpu.generate(program, HOPPER, Specialization(fast=True))
    assert [launch.language for launch in code.launches] == ["triton"]


# -- what faults say, and rules that no mutation breaks ------------------------------------------
def _matmul() -> Scheduled:
    (found,) = [s for s in schedules("typical") if s.name == "matmul_relu"]
    return found


def test_a_fault_names_launch_role_step_ring_and_trip() -> None:
    own = _matmul()
    loop = own.schedule.math[2]
    assert isinstance(loop, For)
    body = tuple(s for s in loop.body if not isinstance(s, Await))
    math = (*own.schedule.math[:2], replace(loop, body=body), *own.schedule.math[3:])
    with pytest.raises(InternalError) as caught:
        own.check(replace(own.schedule, math=math))
    found = re.fullmatch(
        r"the schedule of launch matmul_relu is wrong: role math [01], step `issue gemm .*` "
        r"\(line \d+\), round 0 of ring0, block = 0, k\.\d+ = 0: "
        r"reads a slot (before its round is fetched|that is not known to be full)",
        str(caught.value),
    )
    assert found, caught.value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"load_registers": 20}, "20 registers a thread of the load role"),
        ({"load_registers": 100}, "100 registers a thread of the load role"),
        ({"groups": 40, "staged": ()}, "8 registers a thread of the math role"),
        ({"rings": ()}, "one at least"),
    ],
)
def test_limits_of_the_hardware(changes: dict[str, Any], message: str) -> None:
    own = _matmul()
    with pytest.raises(InternalError, match=message):
        own.check(replace(own.schedule, **changes))


def test_shared_memory() -> None:
    own = _matmul()
    (ring,) = own.schedule.rings
    with pytest.raises(InternalError, match="bytes of shared memory, and there are"):
        own.check(replace(own.schedule, rings=(replace(ring, depth=8),), load=(), math=()))


def test_a_box_of_another_size_than_its_buffer() -> None:
    own = _matmul()
    (ring,) = own.schedule.rings
    boxes = (replace(ring.descriptors[0], box=(64, 64)), ring.descriptors[1])
    with pytest.raises(InternalError, match="has 16384 bytes, its box 8192"):
        own.check(replace(own.schedule, rings=(replace(ring, descriptors=boxes),)))


def test_a_step_of_the_other_role() -> None:
    own = _matmul()
    with pytest.raises(InternalError, match="a step of the other role"):
        own.check(replace(own.schedule, load=own.schedule.math))


def test_the_generator_checks_what_it_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    own = gpu.schedule_launch

    def wrong(*args: Any) -> Any:
        schedule = own(*args)
        kept = tuple(
            s if not isinstance(s, Release) else replace(s, when=fold.const(False, fold.BOOL))
            for s in schedule.math
        )
        return replace(schedule, math=kept)

    monkeypatch.setattr(gpu, "schedule_launch", wrong)
    program = typical.PROGRAMS["matmul_relu"]()
    with pytest.raises(InternalError, match=r"round \d+ of ring0 is not released"):
        gpu.generate(program, HOPPER, Specialization(fast=True))
    with option.debug.verify_ir(False):
        gpu.generate(program, HOPPER, Specialization(fast=True))
