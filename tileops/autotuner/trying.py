"""Owns the measurement of configs by the user's own timer, in this process, on copies of inputs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileops.autotuner.campaign import Outcome
from tileops.autotuner.checking import Checker, ReferenceFailedError
from tileops.autotuner.inputs import clone
from tileops.autotuner.measuring import Measured
from tileops.autotuner.ranks import Json
from tileops.autotuner.spaces import Config
from tileops.errors import ArgumentTypeError, SharedMemoryError
from tileops.ir.program import Program
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.provider import Build
from tileops.op.spec import spec_of

# (config, kernel, inputs) -> milliseconds.
Timer = Callable[[Config, JITKernel, Sequence[Any]], float]
Progress = Callable[[int, Outcome], None]


@dataclass(frozen=True)
class Candidate:
    """One config to try, and its traced program."""

    config: Config
    program: Program


class TimerWork:
    """Compiles and times candidates one after another (see ``ranks.Work``)."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        build: Build,
        inputs: Sequence[Any],
        checker: Checker,
        timer: Timer,
        progress: Progress,
        repeats: int = 1,
    ) -> None:
        self._candidates = candidates
        self._build = build
        self._inputs = inputs
        self._checker = checker
        self._timer = timer
        self._progress = progress
        self._repeats = repeats
        self._outcomes: dict[int, Outcome] = {}

    def look(self, numbers: Iterable[int]) -> None:
        """Compile, check and time these configs."""
        for number in numbers:
            candidate = self._candidates[number]
            outcome = Outcome(self._try(candidate), where="caller")
            self._outcomes[number] = outcome
            self._progress(number, outcome)

    def _try(self, candidate: Candidate) -> Measured:
        try:
            kernel = make_kernel(candidate.program.name, candidate.program, self._build)
        except SharedMemoryError as error:
            return Measured("shared_memory", reason=str(error))
        except Exception as error:  # whatever is wrong with a config is its own affair
            return Measured("compile_error", reason=f"{type(error).__name__}: {error}")
        try:
            if self._checker.compares:
                inputs = copies(self._inputs)
                results = _results(kernel(*inputs), inputs, candidate.program)
                self._checker.check(results, spec_json(candidate.program))
        except ReferenceFailedError:
            raise
        except Exception as error:  # a user's own check raises what it likes
            return Measured("wrong_result", reason=str(error))
        try:
            found: list[Any] = [
                self._timer(dict(candidate.config), kernel, copies(self._inputs))
                for _ in range(self._repeats)
            ]
        except Exception as error:
            return Measured("error", reason=f"{type(error).__name__}: {error}")
        times = [self._milliseconds(value) for value in found]
        wrong = [ms for ms in times if not 0 <= ms < math.inf]
        if wrong:
            return Measured("error", reason=f"the timer gave {wrong[0]}")
        middle = float(statistics.median(times))
        return Measured("ok", middle, float(min(times)), float(max(times)), len(times))

    def _milliseconds(self, value: Any) -> float:  # noqa: ANN401
        """A timer's answer as a number; others' numbers and tensors of one element are taken."""
        has_value = hasattr(value, "__float__") and not isinstance(value, (bool, str))
        try:
            return float(value) if has_value else _no_number(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return _no_number(value)

    def results(self) -> dict[int, Json]:
        """What is known of the configs that were tried."""
        return {number: outcome.to_json() for number, outcome in self._outcomes.items()}

    def decide(self, results: Mapping[int, Json]) -> Json:
        """The ranking by time."""
        times = {n: value["measured"]["latency_ms"] for n, value in results.items()}
        right = [n for n, ms in times.items() if ms is not None]
        return {
            "outcomes": {str(n): value for n, value in results.items()},
            "ranking": sorted(right, key=lambda n: (times[n], n)),
        }


def _no_number(value: object) -> float:
    raise ArgumentTypeError(
        f"timer: expected milliseconds as a number, got {type(value).__name__} {value!r:.60}"
    )


def copies(inputs: Sequence[Any]) -> list[Any]:
    """The inputs, each tensor replaced by a copy that looks alike."""
    import torch

    return [clone(v) if isinstance(v, torch.Tensor) else v for v in inputs]


def spec_json(program: Program) -> Mapping[str, Any]:
    """What the program takes and writes, as the runtime describes ops."""
    return spec_of(program, namespace="tileops_loaded", name=program.name).to_json()


def _results(returned: object, inputs: Sequence[Any], program: Program) -> list[Any]:
    """Returned tensors, then those written in place."""
    args = [a for a in spec_json(program)["args"] if a["role"] in ("tensor", "scalar")]
    found = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    written = [v for a, v in zip(args, inputs, strict=True) if a["mutated"]]
    return [v for v in found if v is not None] + written
