"""Owns the mark of functions that a traced region runs at trace time, for a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def constant(function: _F) -> _F:
    """Mark ``function``: Dynamo calls it once while tracing and keeps its result in the graph.

    It must return text, a number or a bool; its arguments must be constants of the trace.
    """
    # What torch.compiler.assume_constant_result sets. That imports Dynamo, which takes longer than
    # all else at a first call, and Dynamo imports Triton; a program that is never traced needs
    # neither.
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
