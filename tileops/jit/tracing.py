"""Owns the mark of functions that a traced region runs at trace time, for a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

_F = TypeVar("_F", bound=Callable[..., Any])


def constant(function: _F) -> _F:
    """Mark ``function``: Dynamo calls it once while tracing and keeps its result in the graph.

    It must return text, a number or a bool; its arguments must be constants of the trace.
    """
    torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call,unused-ignore]
    return function
