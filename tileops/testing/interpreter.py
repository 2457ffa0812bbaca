"""The interpreter under the name by which tests know it."""

from __future__ import annotations

from tileops.interpreter.executor import evaluate, interpret

__all__ = ["evaluate", "interpret"]
