"""Groups of threads with work of their own, and the registers of their threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tileops.errors import ProgramValueError, UnsupportedConstructError
from tileops.ir.builder import Builder
from tileops.ir.explicit import Role
from tileops.language.launch import get_thread_binding
from tileops.language.operands import int_of
from tileops.language.tracer import require_launch, require_tracer, tracer_in_launch
from tileops.language.value import Value, binary

__all__ = ["dec_max_nreg", "inc_max_nreg", "set_max_nreg", "shuffle_elect", "ws"]

GROUP = 128  # threads of a warp group
_LEAST_REGISTERS, _MOST_REGISTERS, _UNIT = 24, 256, 8  # PTX ISA, setmaxnreg


def ws(*warp_group_ids: object) -> AbstractContextManager[None]:
    """A body for given groups of 128 threads.

    In a launch without barriers, bodies run in order.
    """
    require_launch("T.ws")
    numbers = sorted(int_of("T.ws", "a group", n) for n in warp_group_ids)
    if not numbers:
        raise ProgramValueError("T.ws needs the number of a group")
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))) or numbers[0] < 0:
        raise UnsupportedConstructError(
            "T.ws of groups that are not neighbours", found=str(numbers)
        )
    return _role(numbers[0] * GROUP, len(numbers) * GROUP)


@contextmanager
def _role(first: int, count: int) -> Iterator[None]:
    tracer = require_tracer("T.ws")
    loc = tracer.location
    with tracer.body() as statements:
        yield
    if statements:
        # What a body names stays usable behind it, as in Python.
        Builder.emit(tracer, Role(first, count, tuple(statements), loc=loc))


def shuffle_elect(thread_extent: object) -> Value:
    """True for the first of each ``thread_extent`` threads."""
    count = int_of("T.shuffle_elect", "thread_extent", thread_extent)
    if count < 0:
        raise ProgramValueError("T.shuffle_elect: wrong thread_extent", found=str(count))
    tx = get_thread_binding()
    return binary("eq", binary("floormod", tx, count) if count else tx, 0)


def set_max_nreg(reg_count: object, is_inc: object) -> None:
    """The registers of each thread of this group; a hint, which is checked."""
    tracer_in_launch("T.set_max_nreg")
    number = int_of("T.set_max_nreg", "reg_count", reg_count)
    if number % _UNIT or not _LEAST_REGISTERS <= number <= _MOST_REGISTERS:
        raise ProgramValueError(
            "T.set_max_nreg: wrong number of registers",
            expected=f"a multiple of {_UNIT} from {_LEAST_REGISTERS} to {_MOST_REGISTERS}",
            found=str(number),
        )


def inc_max_nreg(reg_count: object) -> None:
    """T.set_max_nreg for a group that gets more."""
    set_max_nreg(reg_count, 1)


def dec_max_nreg(reg_count: object) -> None:
    """T.set_max_nreg for a group that gives some up."""
    set_max_nreg(reg_count, 0)
