"""Kernels of a public library, from its wheel: ``module("rms_norm")`` is one of its files.

The package itself is not imported, because that imports every model library that is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "liger_kernel"


def module(name: str) -> Any:
    """The library's file of kernels ``name``."""
    if NAME not in sys.modules:
        spec = importlib.util.find_spec(NAME)
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(
                "these tests need a public library: pip install --no-deps liger-kernel"
            )
        (place,) = spec.submodule_search_locations
        for package, folder in ((NAME, Path(place)), (f"{NAME}.ops", Path(place) / "ops")):
            made = sys.modules[package] = ModuleType(package)
            made.__path__ = [str(folder)]
        sys.modules.setdefault("peft", None)  # type: ignore[arg-type]
    return importlib.import_module(f"{NAME}.ops.{name}")
