"""Schedules run on real numbers in random orders: right ones give what the program says, wrong ones do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tileops.language
from benchmarks.pair import all_pairs
from benchmarks.pairs import attention_backward, attention_backward_two_kernels
from tests.compile import scheduled_programs
from tests.compile.schedule_mutations import Mutation, mutations
from tests.kit.schedules import Scheduled, schedules_of
from tests.kit.traced import program_of, specialise
from tests.programs import cases
from tileops.ir.program import Program
from tileops.ir.schedule import Schedule
from tileops.passes.machine.events import Fault
from tileops.testing.simulation import Memory, run_plain, run_roles, simulate

ORDERS = 3
# Orders in which a wrong schedule runs; some faults need a copy or product that is late by chance.
TRIES = 12
# What numbers do not show in every place: a copy or a product may be early enough in all tries, and
# a later settle may name the result.
MAY_SURVIVE = {
    "Fetch before its Acquire",
    "Release before its Settle",
    "Settle without results",
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiles are small: more threads of torch would cost more than they do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def same(one: Any, other: Any) -> bool:
    """True for equal tensors; a NaN equals a NaN."""
    return bool(torch.allclose(one.double(), other.double(), rtol=0, atol=0, equal_nan=True))


@pytest.mark.parametrize(
    "case", [c for c in cases.CASES if "1024" not in c.id], ids=lambda case: case.id
)
def test_programs_in_roles_give_what_they_say(case: cases.Case) -> None:
    """Bit for bit: sums of products are formed exactly, and their order stays."""
    torch.manual_seed(0)
    inputs = case.inputs()
    program = specialise(case.eager, inputs, **case.options)
    expected = simulate(program, *inputs)
    for result in expected:
        case.check(inputs, result)
    for seed in range(ORDERS):
        for got, right in zip(simulate(program, *inputs, seed=seed), expected, strict=True):
            assert same(got, right)


def test_pairs_in_roles_give_what_they_say() -> None:
    """With tiles of the real sizes on small tensors: every block has something out of bounds.

    Bit for bit, but where blocks add to one place in any order.
    """
    torch.manual_seed(0)
    in_roles, apart = 0, []
    for _, pair in all_pairs():
        program = pair.program(tileops.language, **pair.small, **pair.tiles).program
        if not list(schedules_of(program, pair.name)):
            continue
        in_roles += 1
        given = pair.inputs(**pair.small)
        runs = []
        for seed in (None, *range(ORDERS)):
            runs.append([x.clone() for x in given])
            simulate(program, *runs[-1], seed=seed)
        for after in runs[1:]:
            if not all(map(same, after, runs[0])):
                apart.append(pair.name)
                assert pair.wrong(after, pair.reference(*after, **pair.small)) is None
    assert in_roles >= 40
    assert set(apart) <= {"matmul stream-K fp16 2304x2048x8192"}


class Simulated:
    """One of the scheduled programs, with inputs of small integers and its result."""

    def __init__(self, name: str) -> None:
        self.program: Program = program_of(getattr(scheduled_programs, name), consts={})
        (self.own,) = schedules_of(self.program, name)
        self._inputs = []
        for param in self.program.tensors():
            if not param.allocated:
                low, high = (0, 2) if param.buffer.dtype.is_integer else (-2, 3)
                values = torch.randint(low, high, param.buffer.static_shape() or ())
                self._inputs.append(values.to(param.buffer.dtype.as_torch()))
        (launch,) = self.program.launches
        memory = Memory.of(self.program, self._inputs)
        run_plain(launch, memory)
        self.expected = self._result(memory)

    def _result(self, memory: Memory) -> torch.Tensor:
        return memory.tensors[self.program.tensors()[self.program.returns[0]].buffer.id]

    def run(self, schedule: Schedule, seed: int) -> torch.Tensor:
        memory = Memory.of(self.program, self._inputs)
        run_roles(self.own.launch, schedule, memory, seed)
        return self._result(memory)

    def outcome(self, mutation: Mutation) -> str:
        """What a wrong schedule does: "values", "fault", or "nothing" that is seen."""
        for seed in range(TRIES):
            try:
                got = self.run(mutation.schedule, seed)
            except Fault:
                return "fault"
            if not same(got, self.expected):
                return "values"
        return "nothing"


def of_each_kind(scheduled: Scheduled) -> Iterator[Mutation]:
    """The mutations that the checker must find, two sites a kind."""
    kinds: Counter[str] = Counter()
    for mutation in mutations(scheduled):
        if not mutation.harmless and kinds[mutation.kind] < 2:
            kinds[mutation.kind] += 1
            yield mutation


def test_wrong_schedules_give_wrong_numbers_or_never_end() -> None:
    torch.manual_seed(0)
    found: dict[str, set[str]] = {}
    for name in ("two_products", "product_between", "skipped_steps"):
        simulated = Simulated(name)
        for seed in range(ORDERS):
            assert same(simulated.run(simulated.own.schedule, seed), simulated.expected)
        for mutation in of_each_kind(simulated.own):
            outcome = simulated.outcome(mutation)
            found.setdefault(mutation.kind, set()).add(outcome)
            what = f"{name}: {mutation.kind}: {mutation.site}"
            assert outcome != "nothing" or mutation.kind in MAY_SURVIVE, what
    print({kind: sorted(outcomes) for kind, outcomes in found.items()})
    assert all(outcomes != {"nothing"} for outcomes in found.values())
    of_values = {kind for kind, outcomes in found.items() if "values" in outcomes}
    assert of_values >= {
        "dropped Await", "Settle of one less", "Settle without results",
        "Fetch before its Acquire", "Release before its Settle",
    }  # fmt: skip


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("file", [attention_backward, attention_backward_two_kernels])
def test_attention_backward_in_roles_gives_what_it_says(file: Any, is_causal: bool) -> None:
    """Gradients of an odd number of rows; what blocks add to one element comes in any order."""
    sizes = {"B": 1, "S": 196, "H": 1, "D": 128, "is_causal": is_causal}
    (pair, *_) = file.PAIRS
    torch.manual_seed(0)
    inputs = pair.inputs(**sizes)
    expected = pair.reference(*inputs, **sizes)
    program = file.program(tileops.language, **sizes).program
    plain = tuple(x.clone() for x in inputs)
    simulate(program, *plain)
    assert pair.wrong(plain, expected) is None
    for seed in range(ORDERS):
        got = tuple(x.clone() for x in inputs)
        simulate(program, *got, seed=seed)
        assert pair.wrong(got, expected) is None
        for at in pair.outputs[1:]:  # the gradients of keys and values have one order
            assert same(got[at], plain[at])
