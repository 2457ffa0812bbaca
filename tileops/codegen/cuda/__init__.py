"""The generator of CUDA C++: launches of threads, among the launches of tiles of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tileops.codegen.cpu.threads import threads_of
from tileops.codegen.cuda.kernels import write_kernel
from tileops.codegen.kernel_code import KernelCode
from tileops.errors import UnsupportedOnTargetError
from tileops.ir.program import Program
from tileops.pass_configs import CHECKS
from tileops.passes.context import Context
from tileops.passes.pipeline import CUDA, run
from tileops.target import Target


def with_threads(
    write: Callable[[Program], KernelCode], program: Program, target: Target
) -> KernelCode:
    """The text that ``write`` makes of the launches of tiles, and all launches in program order.

    UnsupportedOnTargetError for launches of threads where CUDA C++ does not run, and for run-time
    checks in them.
    """
    of_threads = tuple(launch for launch in program.launches if threads_of(launch) is not None)
    if not of_threads:
        return write(program)
    first = of_threads[0].body[0]
    if target.kind != "cuda":
        raise UnsupportedOnTargetError(
            f"statements of single threads are for NVIDIA's GPUs and the CPU, not for {target}",
            location=first.loc,
        )
    if CHECKS in dict(program.options):
        raise UnsupportedOnTargetError(
            "option.check has no checks on a GPU for statements of single threads; the CPU has",
            location=first.loc,
        )
    tiles = tuple(launch for launch in program.launches if launch not in of_threads)
    code = KernelCode("triton", f'"""Launches of threads of the program {program.name}."""\n', ())
    if tiles:
        code = write(replace(program, launches=tiles))
    own = run(CUDA, replace(program, launches=of_threads), Context(target))
    made = iter(write_kernel(own, launch, n, target) for n, launch in enumerate(own.launches))
    others = iter(code.launches)
    launches = (next(made if launch in of_threads else others) for launch in program.launches)
    return replace(code, launches=tuple(launches))
