"""Modules that are called like functions.

An import of ``a.b`` puts the module ``b`` where ``a`` may have a function of that name. Such a
module stands for the function, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class CalledModule(ModuleType):
    """A module whose call is that of its ``__function__``."""

    __function__: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the function."""
        return self.__function__(*args, **kwargs)


def let_module_stand_for(name: str, function: Callable[..., Any]) -> None:
    """Make calls of the module ``name`` calls of ``function``."""
    module = sys.modules[name]
    module.__class__ = CalledModule
    vars(module)["__function__"] = function
