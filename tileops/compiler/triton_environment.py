"""Triton's environment during a compile: variables that change code are set aside."""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tileops import forks, settings

# Compiles share Triton's process-wide knobs and the environment that its C++ parts read.
_lock = forks.renewed_lock()

# Beginnings of the names that Triton reads, in Python or in C++ (strings in libtriton.so of 3.6 and
# 3.9), and that newer versions may read. Its own cache is not used here.
_PREFIXES = (
    "AMDGCN_", "DISABLE_LLVM_OPT", "DISABLE_MMA_", "DISABLE_PTXAS_OPT", "LLVM_", "MLIR_", "NVPTX_",
    "PTXAS_", "TRITON_",
)  # fmt: skip
_HARMLESS = frozenset({"cache", "redis", "proton", "autotuning"})


class _Pins:
    """What the compiles in progress have set aside, innermost last; under the lock."""

    def __init__(self) -> None:
        self.open: list[ExitStack] = []
        forks.renew_in_child(self)

    def renew(self) -> None:
        """Restore in a child what the compile of a lost thread had unset."""
        if not forks.is_held_here(_lock):
            while self.open:
                self.open.pop().close()


_pins = _Pins()


@contextmanager
def pinned(folder: Path) -> Iterator[None]:
    """Compile as if no variable of Triton's were set, without line information.

    Its tools run in the environment that all compilers get, with their files in ``folder``. All is
    restored at the end. Holds a process-wide lock: compiles in threads of one process run one after
    another.
    """
    from triton import knobs
    from triton._C.libtriton import getenv
    from triton.backends.amd import compiler as amd
    from triton.backends.nvidia import compiler as nvidia

    with _lock:
        stack = ExitStack()
        try:
            with forks.guard:  # a child finds Triton's settings whole, and what to put back
                _pins.open.append(stack)
                _pin(stack, knobs, getenv)
                _replace_tools(stack, folder, knobs, nvidia, amd)
            yield
        finally:
            with forks.guard:
                _pins.open.remove(stack)
                stack.close()


def _pin(stack: ExitStack, knobs: Any, getenv: Any) -> None:
    families = [
        getattr(knobs, name)
        for name in ("build", "compilation", "runtime", "language", "nvidia", "amd")
        if hasattr(knobs, name)
    ]
    for family in families:
        stack.enter_context(family.scope())
    for name, value in _set_aside(knobs, getenv, families).items():
        stack.callback(knobs.setenv, name, value)
    knobs.compilation.disable_line_info = True
    knobs.runtime.add_stages_inspection_hook = None


def _replace_tools(stack: ExitStack, folder: Path, knobs: Any, nvidia: Any, amd: Any) -> None:
    """Let this thread run Triton's tools in the compilers' environment, files in ``folder``."""
    fixed: dict[str, Any] = {
        "env": settings.compiler_environment(str(folder)),
        "stdin": subprocess.DEVNULL,
    }
    run = _Functions(
        subprocess,
        run=partial(forks.run_process, **fixed),
        check_output=partial(forks.output_of_process, **fixed),
    )
    files = _Functions(
        tempfile, NamedTemporaryFile=partial(tempfile.NamedTemporaryFile, dir=str(folder))
    )
    for module, name, functions in (
        (knobs, "subprocess", run),
        (nvidia, "subprocess", run),
        (nvidia, "tempfile", files),
        (amd, "tempfile", files),
    ):
        if hasattr(module, name):
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, functions)


def clear_gluon_at_exit() -> None:
    """Gluon's modules cleared when Python exits: Triton 3.9 reports leaked objects otherwise.

    Once Triton infers a layout in Gluon (for ``x[:, None]``, say), its C++ holds classes of Gluon's
    until the process ends. Their methods hold the globals of their modules, and through those most
    of Triton. Python clears the globals of a module at exit only if something holds the module
    itself, so each one becomes a global of its own.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("triton.experimental.gluon"):
            vars(module)["_held_until_exit"] = module


class _Functions:
    """A module in which some functions are others, for the thread that made it."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._module = module
        self._functions = functions
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if name in self._functions and threading.get_ident() == self._thread:
            return self._functions[name]
        return getattr(self._module, name)


def _set_aside(knobs: Any, getenv: Any, families: list[Any]) -> dict[str, str]:
    names = set(settings.names_beginning(_PREFIXES))
    for name in _HARMLESS:
        family = getattr(knobs, name, None)
        names -= {knob.key for knob in family.knob_descriptors.values()} if family else set()
    for family in families:
        names |= {knob.key for knob in family.knob_descriptors.values()}
        for knob in family.knob_descriptors:
            # Values given in Python win over the environment; without one the default holds.
            family.__dict__.pop(knob, None)
    saved = {}
    for name in sorted(names):
        value = getenv(name)
        if value is not None:
            saved[name] = value
            knobs.setenv(name, None)
    return saved
