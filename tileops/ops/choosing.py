"""Whether a graph of ``torch.compile`` gets an operator's op or the same in torch operations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from tileops.ops import arguments

MODES = AUTO, OPAQUE, DECOMPOSE = "auto", "opaque", "decompose"
TABLE_FILE = Path(__file__).parent / "configs" / "compile.json"
# Of each operator, for inference and training: the widest row that is decomposed; None for any.
TABLE: dict[str, Any] = json.loads(TABLE_FILE.read_text(encoding="utf-8"))
_WIDEST: dict[str, dict[str, int | None]] = TABLE["widest_decomposed_row"]

_mode = AUTO


class CompileMode(AbstractContextManager["CompileMode"]):
    """A mode that was set. Leaving a ``with`` block on it restores the former one."""

    def __init__(self, mode: str) -> None:
        global _mode
        arguments.is_one_of("compile_mode", "mode", mode, MODES)
        self._former = _mode
        _mode = mode

    def __exit__(self, *error: object) -> None:
        global _mode
        _mode = self._former


def compile_mode(mode: str) -> CompileMode:
    """Choose what ``torch.compile`` and ``torch.export`` see of a call; returns a handle.

    "opaque" is the operator's op, "decompose" the same in torch operations, which the compiler
    fuses with others. "auto", the default, follows a table by operator and row: ``why`` shows it.
    """
    return CompileMode(mode)


def decomposes(op: str, columns: int, tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether the call that is being traced is decomposed; False outside of a trace."""
    if not torch.compiler.is_compiling():
        return False
    return decision(op, columns, tensors)


def decision(op: str, columns: int, tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether a trace decomposes the call."""
    if _mode != AUTO:
        return _mode == DECOMPOSE
    widest = _WIDEST[op]["training" if arguments.is_recorded(*tensors) else "inference"]
    return widest is None or columns <= widest


def reason(op: str, columns: int, tensors: Sequence[torch.Tensor | None]) -> str:
    """The decision in words."""
    if _mode != AUTO:
        return f"{_mode}: ops.compile_mode({_mode!r}) is set"
    word = DECOMPOSE if decision(op, columns, tensors) else OPAQUE
    return f"{word}: {TABLE['reason']}"
