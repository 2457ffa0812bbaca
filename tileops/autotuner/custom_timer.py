"""A user's own timer in place of the tuner's measurement: in this process, on copies of inputs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tileops.autotuner.checking import Checker, ReferenceFailedError
from tileops.autotuner.database import Measured
from tileops.autotuner.measuring import Progress, answer_of
from tileops.autotuner.recipes import copies_of
from tileops.autotuner.spaces import Config
from tileops.errors import ArgumentTypeError, SharedMemoryError
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.provider import state_of

if TYPE_CHECKING:
    from tileops.autotuner.param import TuningOptions
    from tileops.autotuner.ranks import Json
    from tileops.ir.program import Program
    from tileops.jit.provider import Build

_RUNS = 9  # calls of the timer at the full effort of a search by halving


class CustomTimer:
    """Compiles and times configs one after another (see ``ranks.Work``)."""

    chunk = 1  # how many configs a rank takes at a time

    def __init__(
        self,
        candidates: Mapping[str, tuple[Config, Program]],
        build: Build,
        inputs: Sequence[Any],
        options: TuningOptions,
        progress: Progress,
    ) -> None:
        assert options.timer is not None
        self._candidates = candidates
        self._build = build
        self._inputs = inputs
        self._checker = Checker(options, lambda: copies_of(inputs))
        self._timer: Callable[[Config, JITKernel, Sequence[Any]], object] = options.timer
        self._is_halving = options.search == "halving"
        self._progress = progress
        self._repeats = 1
        self._found: dict[str, Measured] = {}

    def begin(self, effort: float) -> None:
        """Forget what was measured, and measure with this share of the full effort."""
        self._repeats = max(1, round(_RUNS * effort)) if self._is_halving else 1
        self._found = {}

    def look(self, names: Sequence[str]) -> None:
        """Compile, check and time these configs."""
        for name in names:
            self._found[name] = self._try(*self._candidates[name])
            self._progress(name, self._found[name])

    def _try(self, config: Config, program: Program) -> Measured:
        try:
            kernel = make_kernel(program.name, program, self._build)
        except SharedMemoryError as error:
            return _failed("shared_memory", str(error))
        except Exception as error:  # whatever is wrong with a config is its own affair
            return _failed("compile_error", f"{type(error).__name__}: {error}")
        try:
            if self._checker.compares:
                self._check(kernel)
        except ReferenceFailedError:
            raise
        except Exception as error:  # a user's own check raises what it likes
            return _failed("wrong_result", str(error))
        try:
            found = [
                self._timer(dict(config), kernel, copies_of(self._inputs))
                for _ in range(self._repeats)
            ]
        except Exception as error:
            return _failed("error", f"{type(error).__name__}: {error}")
        times = [_milliseconds(value) for value in found]
        wrong = [ms for ms in times if not 0 <= ms < math.inf]
        if wrong:
            return _failed("error", f"the timer gave {wrong[0]}")
        middle = float(statistics.median(times))
        return Measured("ok", middle, min(times), max(times), len(times), where="caller")

    def _check(self, kernel: JITKernel) -> None:
        """Compare what a call returns and then what it writes; raises where they are wrong."""
        op: dict[str, Any] = state_of(kernel.name).registered().spec.to_json()
        inputs = copies_of(self._inputs)
        returned = kernel(*inputs)
        args = [a for a in op["args"] if a["role"] in ("tensor", "scalar")]
        found = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        written = [v for a, v in zip(args, inputs, strict=True) if a["mutated"]]
        self._checker.check([v for v in found if v is not None] + written, op)

    def results(self) -> dict[str, Json]:
        """What is known of the configs that were tried."""
        return {name: asdict(measured) for name, measured in self._found.items()}

    def decide(self, results: Mapping[str, Json]) -> Json:
        """All results, and the names of the right configs, fastest first."""
        return answer_of({name: Measured(**result) for name, result in results.items()})


def _failed(status: str, reason: str) -> Measured:
    return Measured(status, reason=reason, where="caller")


def _milliseconds(value: Any) -> float:  # noqa: ANN401
    """A timer's answer as a number: also others' numbers and tensors of one element."""
    if hasattr(value, "__float__") and not isinstance(value, (bool, str)):
        with suppress(TypeError, ValueError, RuntimeError, OverflowError):
            return float(value)
    raise ArgumentTypeError(
        f"timer: expected milliseconds as a number, got {type(value).__name__} {value!r:.60}"
    )
