"""Tile programs in Python, compiled on demand into PyTorch operators.

Importing the package imports nothing else of it: names are found when they are first used.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileops import cache as cache
    from tileops import language as language
    from tileops import layout as layout
    from tileops import math as math
    from tileops import metrics as metrics
    from tileops import ops as ops
    from tileops import option as option
    from tileops import profiler as profiler
    from tileops import roofline as roofline
    from tileops import transform as transform
    from tileops.alias import install_alias as install_alias
    from tileops.autotuner.decorator import AutoTuner as AutoTuner
    from tileops.autotuner.decorator import autotune as autotune
    from tileops.autotuner.inputs import set_autotune_inputs as set_autotune_inputs
    from tileops.autotuner.spaces import space as space
    from tileops.cache.artifacts import load_cache_artifacts as load_cache_artifacts
    from tileops.cache.artifacts import save_cache_artifacts as save_cache_artifacts
    from tileops.cache.kernel_cache import disable_cache as disable_cache
    from tileops.cache.kernel_cache import enable_cache as enable_cache
    from tileops.cache.kernel_cache import is_cache_enabled as is_cache_enabled
    from tileops.counters import on_compile as on_compile
    from tileops.counters import on_event as on_event
    from tileops.counters import stats as stats
    from tileops.errors import ArgumentError as ArgumentError
    from tileops.errors import ArgumentTypeError as ArgumentTypeError
    from tileops.errors import CompileMissError as CompileMissError
    from tileops.errors import NotDifferentiableError as NotDifferentiableError
    from tileops.errors import ProgramError as ProgramError
    from tileops.errors import RedefinedOpError as RedefinedOpError
    from tileops.errors import TileopsError as TileopsError
    from tileops.errors import ToolchainError as ToolchainError
    from tileops.foreign.wrappers import triton_configs as triton_configs
    from tileops.jit import JITImpl as JITImpl
    from tileops.jit import JITKernel as JITKernel
    from tileops.jit import PassConfigKey as PassConfigKey
    from tileops.jit import compile as compile
    from tileops.jit import jit as jit
    from tileops.jit import par_compile as par_compile
    from tileops.jit.bundle_writer import bundle as bundle
    from tileops.jit.warmup import warmup as warmup
    from tileops.language import GemmWarpPolicy as GemmWarpPolicy
    from tileops.language.foreign import cubin as cubin
    from tileops.language.foreign import cuda as cuda
    from tileops.language.foreign import ptx as ptx
    from tileops.log import set_log_level as set_log_level
    from tileops.math import cdiv as cdiv
    from tileops.math import next_power_of_2 as next_power_of_2
    from tileops.op.bundle_ops import load_bundle as load_bundle
    from tileops.patching import patch as patch
    from tileops.profiler import Profiler as Profiler
    from tileops.profiler import TensorSupplyType as TensorSupplyType

__version__ = "0.1.0"

# Public name to the module that holds it; a module's own name stands for the module.
_HOMES = {
    **dict.fromkeys(("JITImpl", "JITKernel", "PassConfigKey", "compile", "par_compile"), "jit"),
    **dict.fromkeys(("Profiler", "TensorSupplyType"), "profiler"),
    **dict.fromkeys(
        (
            "ArgumentError",
            "ArgumentTypeError",
            "CompileMissError",
            "NotDifferentiableError",
            "ProgramError",
            "RedefinedOpError",
            "TileopsError",
            "ToolchainError",
        ),
        "errors",
    ),
    **dict.fromkeys(("disable_cache", "enable_cache", "is_cache_enabled"), "cache.kernel_cache"),
    **dict.fromkeys(("load_cache_artifacts", "save_cache_artifacts"), "cache.artifacts"),
    **dict.fromkeys(("cdiv", "next_power_of_2"), "math"),
    **dict.fromkeys(("AutoTuner", "autotune"), "autotuner.decorator"),
    "space": "autotuner.spaces",
    "triton_configs": "foreign.wrappers",
    **dict.fromkeys(("cuda", "ptx", "cubin"), "language.foreign"),
    "set_autotune_inputs": "autotuner.inputs",
    "GemmWarpPolicy": "language",
    "bundle": "jit.bundle_writer",
    "load_bundle": "op.bundle_ops",
    "install_alias": "alias",
    **dict.fromkeys(("on_compile", "on_event", "stats"), "counters"),
    "set_log_level": "log",
    "patch": "patching",
    "warmup": "jit.warmup",
}
# Names that TileLang programs find on their package. None of them is a name of tileops' own.
_OF_PROGRAMS = {
    "DataType": ("dialect.tvm", "DataType"),
    "engine": ("dialect.lowering", None),
    "env": ("dialect.environment", "env"),
    "lower": ("dialect.lowering", "lower"),
    "tools": ("dialect.tools", None),
    "tvm": ("dialect.tvm", None),
}
_MODULES = frozenset(
    (
        "autotuner", "cache", "errors", "jit", "language", "layout", "math", "option", "ops",
        "profiler", "roofline", "testing", "transform", "metrics",
    )
)  # fmt: skip

__all__ = sorted((*_HOMES, *_MODULES - {"testing"}))


def _warn_of_namesake(folder: str) -> None:
    """Warn where the distribution ``tileops`` of another project shares this package's folder.

    Each overwrites files of the other. One listing of the folder that holds the package.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208  (importing the package does not pay for pathlib)
    except OSError:  # in an archive, say
        return
    infos = [name for name in names if name.endswith(".dist-info")]
    others = [name for name in infos if name.startswith("tileops-")]
    if others and any(name.startswith("tileops_torch-") for name in infos):
        warnings.warn(
            f"two distributions are installed as the package tileops: tileops-torch, whose code "
            f"this is, and {others[0].removesuffix('.dist-info')}, another project; each "
            "overwrites files of the other. Keep one: pip uninstall -y tileops tileops-torch, then "
            "pip install tileops-torch",
            RuntimeWarning,
            stacklevel=2,
        )


_warn_of_namesake(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120


def _offer_operators() -> None:
    """Let ``torch.ops.tileops`` find the operators of ``tileops.ops``, if torch is loaded."""
    if hasattr(sys.modules.get("torch"), "ops"):
        importlib.import_module("tileops.ops.namespace")


_offer_operators()


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _MODULES:
        return importlib.import_module(f"tileops.{name}")
    if name in _OF_PROGRAMS:
        place, inner = _OF_PROGRAMS[name]
        module = importlib.import_module(f"tileops.{place}")
        return module if inner is None else getattr(module, inner)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tileops' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tileops.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOMES, *_MODULES))
