"""Owns warmup: compiling and loading programs before their first call."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileops import frontend, runtime
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentTypeError
from tileops.ir.program import INDEX32_LIMIT
from tileops.jit.compiling import run_all
from tileops.jit.eager import EagerProvider
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel
from tileops.jit.kernel_state import (
    Build,
    KernelState,
    reaches_index64,
    state_for,
    state_of,
)
from tileops.jit.lazy import program_of
from tileops.jit.specialising import specialise
from tileops.jit.targets import (
    TargetLike,
    default_target,
    device_target,
    is_runnable_on,
    requested_target,
)
from tileops.op.registration import Op
from tileops.op.variant import Variant
from tileops.target import Target

Device = tuple[str, int]  # as torch names it: type and index


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
    wanted = requested_target(target)
    forms = [_form_of(item, wanted) for item in programs]
    jobs = [functools.partial(form.make, fast) for form in forms for fast in (True, False)]
    run_all(jobs, num_workers, ignore_error=False)
    return len(jobs)


@dataclass(frozen=True)
class _Form:
    """One program at one set of sizes. ``device`` None: it is compiled and not loaded."""

    provider: EagerProvider | KernelState
    op: Op
    variant: Variant
    consts: tuple[int, ...]
    sizes: Mapping[str, int]
    target: Target
    device: Device | None
    index64: bool

    def make(self, fast: bool) -> None:
        """Compile it under these facts, and load it where it can run."""
        if self.device is None:
            spec = Specialization(fast, self.index64)
            self.provider.obtain(self.op, self.variant, self.target, spec, self.consts, self.sizes)
            return
        device_type, device_index = self.device
        request = {
            "device_type": device_type,
            "device_index": device_index,
            "consts": list(self.consts),
            "fast": fast,
            "index64": self.index64,
            "sizes": dict(self.sizes),
        }
        self.provider.supply_entry(self.op, self.variant, request)
        runtime.load_entry(
            self.op.handle,
            self.op.publish_variant(self.variant.static),
            cuda=device_type == "cuda",
            device_index=device_index,
            consts=(*self.consts, *self.op.bucket(self.variant, self.sizes)),
            fast=fast,
            index64=self.index64,
        )


def _form_of(item: object, wanted: Target | None) -> _Form:
    program, arguments = (item[0], item[1:]) if isinstance(item, tuple) and item else (item, ())
    keywords: Mapping[str, object] = {}
    if arguments and isinstance(arguments[-1], Mapping):
        arguments, keywords = arguments[:-1], arguments[-1]
    match program:
        case JITImpl() if program.is_lazy_mode() and program.is_tuned:
            return _kernel_form(state_of(program.compile(*arguments, **keywords).name), wanted)
        case JITImpl() if program.is_lazy_mode():
            traced = program.get_tir(*arguments, **keywords)
            build = Build(wanted) if wanted is not None else program._build
            return _kernel_form(state_for(program.definition.name, traced, build), wanted)
        case JITImpl():
            return _eager_form(program, arguments, keywords, wanted)
        case JITKernel() | frontend.PrimFunc() if arguments or keywords:
            raise ArgumentTypeError(
                f"warmup: a {type(program).__name__} has its sizes already and takes no arguments"
            )
        case JITKernel():
            return _kernel_form(state_of(program.name), wanted)
        case frontend.PrimFunc():
            traced = program_of(program)
            return _kernel_form(state_for(traced.name, traced, Build(wanted)), wanted)
        case _:
            raise ArgumentTypeError(
                "warmup takes programs, kernels, T.prim_funcs, or tuples of a program and its "
                f"arguments; got {type(program).__name__}"
            )


def _kernel_form(state: KernelState, wanted: Target | None) -> _Form:
    target, device = _where(wanted or state.build.target, None)
    op = state.op()
    index64 = reaches_index64(state.program)
    return _Form(state, op, op.variant(()), (), {}, target, device, index64)


def _eager_form(
    program: JITImpl,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    wanted: Target | None,
) -> _Form:
    definition = program.definition
    values, _ = definition.bind_arguments(arguments, keywords)
    made = specialise(definition, arguments, keywords)
    given = {k: v for k, v in values.items() if k not in definition.inputs}
    program, given = program.carrier(given)
    provider = program._eager
    op = provider.register(given, is_derived=program._is_derived)
    left_out = [n for n in definition.optional if n in values and values[n] is None]
    static = provider.static_of(op.spec, given, made.static, left_out)
    tensors: list[Any] = [values[n] for n in definition.tensors if values.get(n) is not None]
    target, device = _where(wanted or provider.build.target, _device_of(tensors))
    count = max((_elements(t.shape) for t in tensors), default=0)
    return _Form(
        provider,
        op,
        op.variant(static),
        tuple(made.consts.values()),
        made.sizes,
        target,
        device,
        count >= INDEX32_LIMIT or reaches_index64(made.program),
    )


def _elements(shape: Sequence[int]) -> int:
    return functools.reduce(lambda count, extent: count * int(extent), shape, 1)


def _device_of(tensors: Sequence[Any]) -> Device | None:
    for tensor in tensors:
        device: Any = getattr(tensor, "device", None)
        if device is not None and device.type in ("cpu", "cuda"):
            return device.type, device.index or 0
    return None


def _where(wanted: Target | None, device: Device | None) -> tuple[Target, Device | None]:
    """The target to compile for, and the device to load on: None where none here runs it."""
    import torch

    devices: list[Device] = [("cpu", 0)]
    if torch.cuda.is_available():
        devices.insert(0, ("cuda", torch.cuda.current_device()))
    if device is not None:
        devices.insert(0, device)
    if wanted is None:
        return (device_target(*device), device) if device else (default_target(), devices[0])
    return wanted, next((d for d in devices if is_runnable_on(wanted, *d)), None)
