"""Lazy programs: functions that return a ``T.prim_func``, and the kernels made of them."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from tileops import forks, frontend
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.program import Program
from tileops.jit.definition import Definition, with_options
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.provider import Build
from tileops.jit.statics import freeze_all
from tileops.pass_configs import options_of

Key = tuple[object, ...]


class LazyKernels:
    """The kernels of one lazy function, one for each set of arguments."""

    def __init__(self, definition: Definition, build: Build) -> None:
        self.definition = definition
        self.build = build
        self._kernels: dict[Key, JITKernel] = {}
        self._building: dict[Key, threading.RLock] = {}

    def key(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Key:
        """Normalised arguments: defaults filled in, and 1, True and 1.0 kept apart."""
        return freeze_all(self._arguments(args, kwargs).items())

    def _arguments(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
        try:
            signature = inspect.signature(self.definition.func)
            bound = signature.bind(*args, **{**self.definition.bound, **kwargs})
        except TypeError as error:
            raise ArgumentTypeError(f"{self.definition.name}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def program(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Program:
        """The traced program; ArgumentTypeError if the function returns no prim_func."""
        definition = self.definition
        with frontend.for_interpreter() if self.build.is_interpreted else nullcontext():
            result = definition.func(*args, **{**definition.bound, **kwargs})
        if not isinstance(result, frontend.PrimFunc):
            raise ArgumentTypeError(
                f"{definition.name}: a lazy function returns a T.prim_func, got "
                f"{type(result).__name__}"
            )
        return program_of(
            result,
            name=definition.name,
            out_idx=definition.options.out_idx,
            options=definition.program_options,
        )

    def unload(self) -> None:
        """Free the loaded code of every kernel that was built."""
        with forks.guard:
            kernels = tuple(self._kernels.values())
        for kernel in kernels:
            kernel.unload()

    def kernel(self, args: Sequence[object], kwargs: Mapping[str, object]) -> JITKernel:
        """The kernel for these arguments, built once however many threads ask."""
        key = self.key(args, kwargs)
        found = self._kernels.get(key)
        if found is not None:
            return found
        with forks.guard:
            lock = self._building.setdefault(key, forks.renewed_lock())
        with lock:
            found = self._kernels.get(key)
            if found is None:
                program = self.program(args, kwargs)
                found = make_kernel(self.definition.name, program, self.build)
                self._kernels[key] = found
        with forks.guard:
            self._building.pop(key, None)
        return found


def program_of(
    func: Any,  # noqa: ANN401
    *,
    name: str | None = None,
    out_idx: list[int] | int | None = None,
    options: tuple[tuple[str, str], ...] = (),
) -> Program:
    """The program of a prim_func, ``options`` over its own; ArgumentError for two ``out_idx``."""
    program: Program = func.program
    attrs = dict(func.attrs)
    inner = attrs.get("out_idx", attrs.get("tilelang_out_idx"))
    if inner is not None and out_idx is not None:
        raise ArgumentError(
            f"{name or func.name}: out_idx is given both in the program and by the caller"
        )
    wanted = out_idx if out_idx is not None else inner
    if wanted is not None:
        program = frontend.with_out_idx(program, wanted)
    own = options_of(attrs.get("pass_configs"), attrs.get("compile_flags"))
    program = with_options(with_options(program, own), options)
    return replace(program, name=name or func.name)
