"""Programs, kernels and how they are made: ``jit``, ``compile``, ``par_compile``.

The package is itself the decorator: ``@tileops.jit`` works whether or not one of its modules was
imported before. Its names are found when they are first used: a process that only compiles imports
``tileops.jit.compiling`` and never torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tileops.log import logger
from tileops.pass_configs import PassConfigKey

if TYPE_CHECKING:
    from tileops.jit.entry_points import compile as compile
    from tileops.jit.entry_points import jit as jit
    from tileops.jit.entry_points import par_compile as par_compile
    from tileops.jit.impl import JITImpl as JITImpl
    from tileops.jit.kernel import JITKernel as JITKernel
    from tileops.jit.kernel import KernelParam as KernelParam

__all__ = [
    "JITImpl",
    "JITKernel",
    "KernelParam",
    "PassConfigKey",
    "compile",
    "jit",
    "logger",
    "par_compile",
]

_HOMES = {
    **dict.fromkeys(("compile", "jit", "par_compile"), "entry_points"),
    "JITImpl": "impl",
    **dict.fromkeys(("JITKernel", "KernelParam"), "kernel"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


class _CallableModule(ModuleType):
    # Importing tileops.jit.<module> makes `tileops.jit` this package, where users expect the
    # decorator.
    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        from tileops.jit.entry_points import jit

        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
