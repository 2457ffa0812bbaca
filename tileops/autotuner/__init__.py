"""Tuning: which configuration of a program is fastest, found safely and kept."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tileops.autotuner.decorator import AutoTuner as AutoTuner
    from tileops.autotuner.decorator import autotune as autotune
    from tileops.autotuner.inputs import set_autotune_inputs as set_autotune_inputs
    from tileops.autotuner.param import AutotuneResult as AutotuneResult
    from tileops.autotuner.param import CompileArgs as CompileArgs
    from tileops.autotuner.param import ProfileArgs as ProfileArgs
    from tileops.autotuner.spaces import Space as Space
    from tileops.autotuner.spaces import space as space
    from tileops.profiler import TensorSupplyType as TensorSupplyType

_HOMES = {
    **dict.fromkeys(("AutoTuner", "autotune"), "tileops.autotuner.decorator"),
    **dict.fromkeys(("AutotuneResult", "CompileArgs", "ProfileArgs"), "tileops.autotuner.param"),
    **dict.fromkeys(("Space", "space"), "tileops.autotuner.spaces"),
    "set_autotune_inputs": "tileops.autotuner.inputs",
    "TensorSupplyType": "tileops.profiler",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tileops.autotuner' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
