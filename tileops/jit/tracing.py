"""Owns the functions that a traced region runs at trace time for a constant, and what they take."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tileops.dtypes import DType

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


def with_constant_sizes(value: Any) -> Any:  # noqa: ANN401
    """``value`` with constants for symbolic sizes, those in a tuple or list included."""
    if type(value) is int:
        return operator.index(value)
    if type(value) in (tuple, list, torch.Size):
        items = [with_constant_sizes(item) for item in value]
        return items if type(value) is list else tuple(items)
    return value


def traceable(value: Any) -> Any:  # noqa: ANN401
    """``value`` as such a function takes it in a traced region.

    A symbolic size becomes a constant; a dtype its text, since Dynamo of torch 2.11 takes the
    instance of a subclass of ``str`` for no constant.
    """
    return value.text if isinstance(value, DType) else with_constant_sizes(value)
