"""The barriers and runs of the abstract multiprocessor on which schedules are checked."""

from __future__ import annotations

import random

import pytest

from tileops.ir.schedule import Advance, Ring
from tileops.passes.machine.barriers import Barrier
from tileops.passes.machine.events import (
    Arrive,
    End,
    Event,
    Fault,
    Read,
    Wait,
    Where,
    Write,
)
from tileops.passes.machine.runs import Run

WHERE = Where("load", Advance(Ring("r", (), (), 1)), ())
FULL, EMPTY = ("r.full", 0), ("r.empty", 0)
PLACE = (7, 0)


def test_a_fresh_barrier_passes_for_parity_1_alone() -> None:
    barrier = Barrier(1)
    assert barrier.passes(1)
    assert not barrier.passes(0)


def test_a_phase_takes_all_arrivals_and_all_bytes() -> None:
    barrier = Barrier(2)
    barrier.arrive({}, 0, WHERE)
    assert not barrier.passes(0)
    barrier.arrive({}, 64, WHERE)
    assert (barrier.phase, barrier.is_half_way) == (0, True)
    barrier.land(PLACE, 1, 64)
    assert (barrier.phase, barrier.is_half_way) == (1, False)
    assert barrier.passes(0)
    assert not barrier.passes(1)


def test_bytes_may_land_before_they_are_announced() -> None:
    barrier = Barrier(1)
    barrier.land(PLACE, 1, 64)
    assert barrier.phase == 0
    barrier.arrive({}, 64, WHERE)
    assert barrier.phase == 1


def test_an_arrival_too_many_while_bytes_are_missing() -> None:
    barrier = Barrier(1)
    barrier.arrive({}, 64, WHERE)
    with pytest.raises(Fault, match="one arrival more than the 1 of a phase"):
        barrier.arrive({}, 0, WHERE)


def test_a_wait_learns_from_completed_phases_alone() -> None:
    barrier = Barrier(2)
    barrier.arrive({("group", 0): 3}, 0, WHERE)
    assert barrier.known == {}
    barrier.arrive({("group", 1): 4}, 0, WHERE)
    assert barrier.known == {("group", 0): 3, ("group", 1): 4}
    barrier.arrive({("group", 0): 5}, 0, WHERE)
    assert barrier.known == {("group", 0): 3, ("group", 1): 4}


def _write(number: int) -> list[Event]:
    return [Arrive(WHERE, FULL, 64), Write(WHERE, PLACE, number, FULL, 64)]


def _read(number: int) -> Event:
    return Read(WHERE, PLACE, number, 0, number + 1)


def _faults(*roles: list[Event]) -> set[str]:
    """What a hundred orders of the roles' events find."""
    found = set()
    for seed in range(100):
        try:
            Run(roles, {FULL: 1, EMPTY: 1}, random.Random(seed)).run()
        except Fault as fault:
            found.add(str(fault).split(": ", 1)[1])
    return found


LOADS = [*_write(0), Wait(WHERE, EMPTY, 0), *_write(1)]
READS = [
    Wait(WHERE, FULL, 0), _read(0), End(WHERE, 0, 1), Arrive(WHERE, EMPTY),
    Wait(WHERE, FULL, 1), _read(1), End(WHERE, 0, 2), Arrive(WHERE, EMPTY),
]  # fmt: skip


def test_two_rounds_of_one_slot() -> None:
    assert _faults(LOADS, READS) == set()


def test_a_read_without_a_wait() -> None:
    found = _faults(LOADS, READS[1:])
    assert "reads a slot that is not known to be full" in found
    assert "reads a slot before its round is fetched" in found


def test_a_write_without_a_wait() -> None:
    found = _faults([*_write(0), *_write(1)], READS)
    assert "overwrites a slot that the copy before may still write" in found


def test_an_arrival_before_the_end_of_the_product() -> None:
    early = [READS[0], READS[1], READS[3], READS[2], *READS[4:]]
    assert _faults(LOADS, early) == {"overwrites a slot that math 0 may still read"}


def test_a_round_that_another_one_overwrites() -> None:
    late = [READS[0], READS[3], Wait(WHERE, FULL, 1), _read(0), End(WHERE, 0, 1)]
    assert _faults(LOADS, late) == {"reads a slot that round 1 overwrites"}


def test_a_wait_for_a_parity_that_does_not_come() -> None:
    (fault,) = _faults([*LOADS, Wait(WHERE, EMPTY, 0)], READS)
    assert fault == (
        "deadlock: load waits for parity 0 of r.empty[0] (phase 2, 1 arrivals and 0 bytes missing)"
    )


def test_a_barrier_that_is_left_half_way() -> None:
    run = Run([[Arrive(WHERE, FULL, 64)]], {FULL: 1, EMPTY: 1}, random.Random(0))
    with pytest.raises(
        Fault, match=r"r.full\[0\] is left half way: phase 0, 0 arrivals and 64 bytes"
    ):
        run.run()
