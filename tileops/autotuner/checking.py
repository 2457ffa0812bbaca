"""Owns the comparison of a config's results with a reference: right before fast."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tileops import forks
from tileops.autotuner.identity import identity
from tileops.errors import TileopsError
from tileops.profiler import assert_close

# References are the user's code, which was not written for several threads.
_turn = forks.renewed_lock()


@dataclass(frozen=True)
class Reference:
    """What results are compared with, and how closely.

    ``program`` takes the arguments of the kernel and returns its results, or writes them into its
    arguments as the kernel does. ``manual`` replaces the comparison: called with (results,
    reference results), it raises as it likes or returns False. Without ``program`` nothing is
    compared.
    """

    program: Callable[..., Any] | None = None
    manual: Callable[[list[torch.Tensor], list[torch.Tensor]], object] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01

    @property
    def identity(self) -> str:
        """Tells one way of checking from another, in every process; empty where none is done."""
        if self.program is None:
            return ""
        limits = (self.rtol, self.atol, self.max_mismatched_ratio)
        manual = "" if self.manual is None else identity(self.manual)
        text = f"{identity(self.program)} {manual or limits}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class ReferenceFailedError(TileopsError):
    """The reference program raised: no config can be blamed, and none can be compared."""


class Checker:
    """Compares results with those of a reference, which runs once on inputs from ``inputs``."""

    def __init__(self, reference: Reference, inputs: Callable[[], list[Any]]) -> None:
        self._reference = reference
        self._inputs = inputs
        self._expected: tuple[list[torch.Tensor], list[Any]] | None = None

    @property
    def compares(self) -> bool:
        """Whether there is anything to compare with."""
        return self._reference.program is not None

    def check(self, results: Sequence[torch.Tensor], op: Mapping[str, Any]) -> None:
        """Raise where ``results`` (returned, then written tensors) are wrong.

        ``op`` says which arguments the kernel writes. AssertionError, or what ``manual`` raises.
        """
        with _turn:
            self._check(results, op)

    def _check(self, results: Sequence[torch.Tensor], op: Mapping[str, Any]) -> None:
        expected = self._expected_results(op)
        found = list(results)[: len(expected)] if self._returned() else list(results)
        if self._reference.manual is not None:
            if self._reference.manual(found, expected) is False:
                raise AssertionError("manual_check_prog returned False")
            return
        if len(found) != len(expected):
            raise AssertionError(
                f"the kernel gives {len(found)} tensors, the reference {len(expected)}"
            )
        for number, (got, want) in enumerate(zip(found, expected, strict=True)):
            assert_close(
                got.to(want.device),
                want,
                self._reference.atol,
                self._reference.rtol,
                self._reference.max_mismatched_ratio,
                f"output {number}",
            )

    def _returned(self) -> list[torch.Tensor]:
        return self._run()[0]

    def _expected_results(self, op: Mapping[str, Any]) -> list[torch.Tensor]:
        returned, arguments = self._run()
        if returned:
            return returned
        args = [a for a in op["args"] if a["role"] in ("tensor", "scalar")]
        return [v for a, v in zip(args, arguments, strict=True) if a["mutated"]]

    def _run(self) -> tuple[list[torch.Tensor], list[Any]]:
        if self._expected is None:
            arguments = self._inputs()
            assert self._reference.program is not None
            try:
                result = self._reference.program(*arguments)
            except Exception as error:
                raise ReferenceFailedError(
                    f"ref_prog raised {type(error).__name__}: {error}"
                ) from error
            values = list(result) if isinstance(result, (tuple, list)) else [result]
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
            if result is not None and not tensors and self._reference.manual is None:
                raise ReferenceFailedError(
                    f"ref_prog gave {type(result).__name__}, expected a tensor, several, or None "
                    "where it writes into its arguments"
                )
            # A reference may return what it was given, or a view that later runs would change.
            self._expected = [t.detach().clone() for t in tensors], arguments
        return self._expected
