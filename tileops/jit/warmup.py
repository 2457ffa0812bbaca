"""``warmup``: programs compiled and loaded before their first call."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tileops import frontend, runtime
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentTypeError
from tileops.ir.program import INDEX32_LIMIT
from tileops.jit.choosing import general_words
from tileops.jit.compiling import obtain_listed, run_all
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel
from tileops.jit.lazy import program_of
from tileops.jit.provider import (
    Build,
    CodeProvider,
    Device,
    KernelState,
    Wanted,
    reaches_index64,
    state_for,
    state_of,
)
from tileops.jit.targets import (
    TargetLike,
    default_target,
    device_for,
    device_target,
    is_runnable_on,
    requested_target,
)
from tileops.target import Target


def warmup(
    programs: Iterable[object], *, target: TargetLike = None, num_workers: int | None = None
) -> int:
    """Compile programs and load them, so that their calls need neither; returns how many forms.

    Each item is a kernel, a ``T.prim_func``, a program without sizes, or a tuple of a program and
    the arguments that its ``compile`` takes: tensors (on ``meta`` too: no data are read) or
    compile-time values, and last a dict of keywords (``T.const`` sizes among them)::

        tileops.warmup([(matmul, a, b), (matmul, {"M": 64, "N": 64, "K": 32}), kernel])

    Of each, two forms are made: for aligned pointers and sizes, and for any. What is on disk is
    loaded, the rest is compiled, ``num_workers`` at a time (default: TILEOPS_COMPILE_WORKERS, else
    the usable processors). Afterwards such calls compile and load nothing: strict mode and CUDA
    graph capture allow them. With a ``target`` that no device here has, the cache is filled and
    nothing is loaded. Raises what compiling raises, once all the others are done.
    """
    if not isinstance(programs, Iterable):
        raise ArgumentTypeError(
            f"warmup takes a list of programs and kernels, got {type(programs).__name__}"
        )
    named = requested_target(target)
    wanted = [_wanted_of(item, named) for item in programs]
    jobs = [functools.partial(_make, one, fast) for one in wanted for fast in (True, False)]
    run_all(jobs, num_workers, ignore_error=False)
    return len(jobs)


def _make(wanted: Wanted, fast: bool) -> None:
    """Compile what is wanted under these facts, and load what calls here ask for."""
    provider = cast("CodeProvider", wanted.op.provider)
    wanted = replace(wanted, spec=replace(wanted.spec, fast=fast))
    _make_form(wanted)
    general = general_words(provider.request_for(wanted).program)
    if general is not None:
        _make_form(replace(wanted, words=general))


def _make_form(wanted: Wanted) -> None:
    op, variant = wanted.op, wanted.variant
    provider = cast("CodeProvider", op.provider)
    if wanted.device is None:
        obtain_listed(provider.request_for(wanted))
        return
    # A call runs the code for its own device, or for jit's target=, whatever target is named here.
    called = provider.target_on(op, wanted.device)
    if called != wanted.target and provider.build.target is None:
        obtain_listed(provider.request_for(wanted))
    provider.supply(replace(wanted, target=called))
    runtime.load_entry(
        op.handle,
        op.publish_variant(variant.static),
        cuda=wanted.device[0] == "cuda",
        device_index=wanted.device[1],
        consts=(*wanted.consts, *op.bucket(variant, wanted.sizes)),
        fast=wanted.spec.fast,
        index64=wanted.spec.index64,
    )


def _wanted_of(item: object, target: Target | None) -> Wanted:
    program, arguments = (item[0], item[1:]) if isinstance(item, tuple) and item else (item, ())
    keywords: Mapping[str, object] = {}
    if arguments and isinstance(arguments[-1], Mapping):
        arguments, keywords = arguments[:-1], arguments[-1]
    match program:
        case JITImpl() if program.is_lazy_mode() and program.is_tuned:
            return _of_kernel(state_of(program.compile(*arguments, **keywords).name), target)
        case JITImpl() if program.is_lazy_mode():
            traced = program.get_tir(*arguments, **keywords)
            build = Build(target) if target is not None else program._build
            return _of_kernel(state_for(program.definition.name, traced, build), target)
        case JITImpl():
            return _of_program(program, arguments, keywords, target)
        case JITKernel() | frontend.PrimFunc() if arguments or keywords:
            raise ArgumentTypeError(
                f"warmup: a {type(program).__name__} has its sizes already and takes no arguments"
            )
        case JITKernel():
            return _of_kernel(state_of(program.name), target)
        case frontend.PrimFunc():
            traced = program_of(program)
            return _of_kernel(state_for(traced.name, traced, Build(target)), target)
        case _:
            raise ArgumentTypeError(
                "warmup takes programs, kernels, T.prim_funcs, or tuples of a program and its "
                f"arguments; got {type(program).__name__}"
            )


def _of_kernel(state: KernelState, target: Target | None) -> Wanted:
    found, device = _where(target or state.build.target, None)
    op = state.registered()
    spec = Specialization(index64=reaches_index64(state.program))
    return Wanted(op, op.variant(()), found, spec, device=device)


def _of_program(
    program: JITImpl, arguments: Sequence[Any], keywords: Mapping[str, Any], target: Target | None
) -> Wanted:
    made = program.specialised(arguments, keywords)
    definition = program.definition
    values, _ = definition.bind_arguments(arguments, keywords)
    given = {k: v for k, v in values.items() if k not in definition.inputs}
    provider, op, carried = program.routed(given)
    left_out = [n for n in definition.optional if n in values and values[n] is None]
    static = provider.static_of(op.spec, carried, made.static, left_out)
    tensors: list[Any] = [values[n] for n in definition.tensors if values.get(n) is not None]
    devices = (getattr(tensor, "device", None) for tensor in tensors)
    on: Any = next((d for d in devices if d is not None and d.type in ("cpu", "cuda")), None)
    given_on = None if on is None else (on.type, on.index or 0)
    found, device = _where(target or provider.build.target, given_on)
    count = max((math.prod(map(int, t.shape)) for t in tensors), default=0)
    is_large = count >= INDEX32_LIMIT or reaches_index64(made.program)
    consts = tuple(made.consts.values())
    spec = Specialization(index64=is_large)
    return Wanted(op, op.variant(static), found, spec, consts, made.sizes, device)


def _where(wanted: Target | None, device: Device | None) -> tuple[Target, Device | None]:
    """The target to compile for, and the device to load on: None if none here runs it."""
    if device is not None and (wanted is None or is_runnable_on(wanted, *device)):
        return wanted or device_target(*device), device
    wanted = wanted or default_target()
    return wanted, device_for(wanted)
