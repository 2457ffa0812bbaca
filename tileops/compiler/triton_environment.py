"""Triton's environment during a compile: what changes code is set aside, its tools see little."""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tileops import settings

# Compiles share Triton's process-wide knobs and the environment that its C++ parts read.
_lock = threading.RLock()

# Read by Triton's C++ parts directly (strings in libtriton.so of 3.6 and 3.9); the rest are Python
# knobs.
_CPP_VARIABLES = (
    "AMDGCN_ENABLE_DUMP",
    "AMDGCN_USE_BUFFER_ATOMICS",
    "AMDGCN_USE_BUFFER_OPS",
    "DISABLE_LLVM_OPT",
    "DISABLE_MMA_V3",
    "DISABLE_MMA_V5",
    "DISABLE_PTXAS_OPT",
    "LLVM_EXTRACT_DI_LOCAL_VARIABLES",
    "LLVM_PASS_PLUGIN_PATH",
    "MLIR_ENABLE_DIAGNOSTICS",
    "MLIR_ENABLE_DUMP",
    "NVPTX_ENABLE_DUMP",
    "TRITON_CONSAN_INIT_ALLOCATIONS",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_DISABLE_LINE_INFO",
    "TRITON_ENABLE_ASAN",
    "TRITON_ENABLE_EXPERIMENTAL_CONSAN",
    "TRITON_F32_DEFAULT",
    "TRITON_FORCE_DISABLE_FP_FUSION",
    "TRITON_HIP_USE_ASYNC_COPY",
    "TRITON_HIP_USE_BLOCK_PINGPONG",
    "TRITON_HIP_USE_COEXEC_SCHEDULER",
    "TRITON_HIP_USE_EXPERT_SCHEDULING",
    "TRITON_HIP_USE_IN_THREAD_TRANSPOSE",
    "TRITON_OVERRIDE_ARCH",
    "TRITON_PLUGIN_PATHS",
)


# Families of such names, for versions that read more of them; Triton's own cache is not used here.
_PREFIXES = ("AMDGCN_", "LLVM_", "MLIR_", "NVPTX_", "PTXAS_", "TRITON_")
_HARMLESS = frozenset({"cache", "redis", "proton", "autotuning"})


@contextmanager
def pinned(folder: Path) -> Iterator[None]:
    """Compile as if no variable of Triton's were set, without line information.

    Its tools run in the environment that all compilers get, with their files in ``folder``. All is
    restored at the end. Holds a process-wide lock: compiles in threads of one process run one after
    another.
    """
    from triton import knobs

    families = [
        getattr(knobs, name)
        for name in ("build", "compilation", "runtime", "language", "nvidia", "amd")
        if hasattr(knobs, name)
    ]
    with _lock, ExitStack() as stack:
        for family in families:
            stack.enter_context(family.scope())
        stack.callback(_restore, knobs, _set_aside(knobs, families))
        knobs.compilation.disable_line_info = True
        knobs.runtime.add_stages_inspection_hook = None
        stack.enter_context(_tools_in(folder))
        yield


@contextmanager
def _tools_in(folder: Path) -> Iterator[None]:
    """Let this thread run Triton's tools in the compilers' environment, files in ``folder``."""
    from triton import knobs
    from triton.backends.amd import compiler as amd
    from triton.backends.nvidia import compiler as nvidia

    environment = settings.compiler_environment(str(folder))
    run = _Functions(
        subprocess,
        run=partial(subprocess.run, env=environment, stdin=subprocess.DEVNULL),
        check_output=partial(subprocess.check_output, env=environment, stdin=subprocess.DEVNULL),
    )
    files = _Functions(
        tempfile, NamedTemporaryFile=partial(tempfile.NamedTemporaryFile, dir=str(folder))
    )
    with ExitStack() as stack:
        for module, name, functions in (
            (knobs, "subprocess", run),
            (nvidia, "subprocess", run),
            (nvidia, "tempfile", files),
            (amd, "tempfile", files),
        ):
            if hasattr(module, name):
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, functions)
        yield


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


def _set_aside(knobs: Any, families: list[Any]) -> dict[str, str]:
    from triton._C.libtriton import getenv

    names = set(_CPP_VARIABLES) | set(settings.names_beginning(_PREFIXES))
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


def _restore(knobs: Any, saved: dict[str, str]) -> None:
    for name, value in saved.items():
        knobs.setenv(name, value)
