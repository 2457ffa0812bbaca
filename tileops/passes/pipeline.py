"""The passes between a traced program and each generator, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from tileops import settings
from tileops.ir.printer import dump
from tileops.ir.program import Program
from tileops.ir.verifier import verify
from tileops.ir.walk import with_origins
from tileops.passes.context import Context
from tileops.passes.drop_empty import drop_empty
from tileops.passes.expand_tile_ops import expand_tile_ops
from tileops.passes.explicit import order_roles
from tileops.passes.hoist_arrays import hoist_arrays
from tileops.passes.hoist_variables import hoist_variables
from tileops.passes.insert_checks import insert_checks
from tileops.passes.lower_encoded import lower_encoded
from tileops.passes.lower_escapes import lower_escapes
from tileops.passes.place_tensors import place_tensors
from tileops.passes.report_checks import report_checks
from tileops.passes.round_fp8 import round_fp8
from tileops.passes.share_among_threads import share_among_threads
from tileops.passes.split_extents import split_extents

# A pass that has nothing to do returns the program itself.
Pass = Callable[[Program, Context], Program]

# First: the others know ordinary launches alone. Then what checks the program as it is written, and
# other passes lower what that inserts.
CHECKS: tuple[Pass, ...] = (order_roles, insert_checks, report_checks)

CPU: tuple[Pass, ...] = (
    *CHECKS,
    drop_empty,  # early: no other pass then has to think of extents of zero
    place_tensors,  # early: it makes nests of copies, whose elements may be encoded
    lower_encoded,  # early as well: it knows tile operations, which the next ones take apart
    share_among_threads,  # before the expansion, which leaves tile operations to the generator
    expand_tile_ops,  # last: the other passes know tile operations
)

# For launches of threads.
CUDA: tuple[Pass, ...] = (
    *CHECKS,
    drop_empty,  # early: no other pass then has to think of extents of zero
    place_tensors,  # early: it makes nests of copies, whose elements may be encoded
    lower_encoded,  # early as well: it knows tile operations, which the next ones take apart
    share_among_threads,  # last: the other passes know tile operations
)

TRITON: tuple[Pass, ...] = (
    *CHECKS,
    drop_empty,  # early: no other pass then has to think of extents of zero
    place_tensors,  # early: it makes nests of copies, whose elements may be encoded
    round_fp8,  # while 8-bit floats are a dtype: the next pass makes bytes of them
    lower_encoded,  # after the rounding, which leaves only conversions of 8-bit floats
    lower_escapes,  # before arrays: the flags that it makes are scalars of each point
    hoist_variables,  # after escapes, whose conditions a variable must leave as well
    split_extents,  # before arrays: it cuts the nests that these get their dimensions from
    hoist_arrays,  # in front of nests that nothing cuts any more
    expand_tile_ops,  # last: the other passes know tile operations
)


def run(passes: tuple[Pass, ...], program: Program, context: Context) -> Program:
    """``program`` after all ``passes``, in order.

    What each pass made is dumped under the pass's name. With ``option.debug.verify_ir`` the program
    is verified before the first pass and after each; a fault is an InternalError that names the
    pass.
    """
    if any(launch.origin is None for launch in program.launches):
        program = with_origins(program)  # built by hand, not traced
    if settings.current().verify_ir:
        verify(program)
    for step in passes:
        program = applied(step.__name__, program, step(program, context))
    return program


def applied(step: str, before: Program, after: Program) -> Program:
    """``after``, which ``step`` made of ``before``: dumped, and verified where it is to be."""
    dump(step, after)
    if settings.current().verify_ir and after is not before:
        verify(after, made_by=step)
    return after
