"""Programs, kernels and how they are made: ``jit``, ``compile``, ``par_compile``.

The package is itself the decorator: ``@tileops.jit`` works whether or not one of its modules was
imported before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tileops.jit.entry_points import compile, jit, par_compile
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel, KernelParam
from tileops.log import logger
from tileops.pass_configs import PassConfigKey

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


class _CallableModule(ModuleType):
    # Importing tileops.jit.<module> makes `tileops.jit` this package, where users expect the
    # decorator.
    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
