"""The measurement of configs: on one bench, or by a user's own timer in this process.

On a bench, a first look at each runs it once, compares its results with the reference, and
estimates its time; rounds follow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from tileops import forks
from tileops.autotuner.benches import Bench, NoSecondContextError, RunFailedError
from tileops.autotuner.database import Answer, Measured
from tileops.autotuner.inputs import copies_of
from tileops.autotuner.rounds import Race, Rules, Samples, is_noisy, quartiles
from tileops.autotuner.search import SEARCHES
from tileops.errors import ArgumentTypeError, SharedMemoryError, TileopsError
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.loadable import written_arguments
from tileops.jit.provider import state_of
from tileops.profiler import assert_all_close

if TYPE_CHECKING:
    from tileops.autotuner.param import TuningOptions
    from tileops.autotuner.spaces import Config
    from tileops.ir.program import Program
    from tileops.jit.provider import Build

    _Candidate = tuple[Config, Program]

_ESTIMATE_RUNS = 3
_WARMUP_MS = 50.0  # a slow config needs no 25 runs to be warm
# A config that takes a thousand times as long as another has lost; it is not waited for to the end
# of the time that a config may take.
_HOPELESS = 1000
_PATIENCE_SECONDS = 10.0
_TIMER_RUNS = 9  # calls of a user's timer at the full effort of a search by halving

Progress = Callable[[str, Measured], None]


class Measurement:
    """The measurement of some configs on one bench.

    Add configs as they are compiled, then ``finish``; ``found`` has what is known.
    ``progress(name, measured)`` hears of each outcome. ``default`` names the config that runs
    without tuning. ``is_gone``: the bench can use its device no more.
    """

    def __init__(
        self,
        bench: Bench,
        options: TuningOptions,
        progress: Progress,
        default: str | None = None,
    ) -> None:
        self._bench = bench
        self._checker = Checker(options, bench.inputs)
        self._options = options
        self._progress = progress
        self._default = default
        self._loadables: dict[str, Mapping[str, Any]] = {}
        self._estimates: dict[str, float] = {}  # milliseconds of configs that are not timed yet
        self.found: dict[str, Measured] = {}
        self.lost: list[str] = []  # not measured for want of the device
        self.is_gone = False

    def add(self, name: str, loadable: Mapping[str, Any]) -> None:
        """Take the first look at a config: is it right, and about how fast is it."""
        self._loadables[name] = loadable
        try:
            estimate = self._first_look(name, loadable)
        except (RunFailedError, NoSecondContextError) as error:
            self._fail(name, error)
        else:
            self._estimates[name] = estimate
            self._note(name, Measured("ok", estimate, samples=_ESTIMATE_RUNS))

    def _first_look(self, name: str, loadable: Mapping[str, Any]) -> float:
        limit, best = self._options.timeout_s, self._best()
        if best is not None:
            limit = min(limit, max(_PATIENCE_SECONDS, _HOPELESS * best / 1e3))
        results = self._bench.run(name, loadable, limit, returns=self._options.checks)
        if self._options.checks:
            try:
                self._checker.check(results, loadable["op"])
            except ReferenceFailedError:
                raise
            except Exception as error:  # a user's own check raises what it likes
                raise RunFailedError("wrong_result", str(error)) from error
        del results
        self._bench.times(name, loadable, 1, limit)
        return min(self._bench.times(name, loadable, _ESTIMATE_RUNS, limit))

    def _best(self) -> float | None:
        times = [m.latency for m in self.found.values() if m.latency is not None]
        return min(times, default=None)

    def _fail(self, name: str, error: Exception) -> None:
        if isinstance(error, NoSecondContextError):  # not the config's fault
            self.is_gone = True
            self.lost.append(name)
        self._estimates.pop(name, None)
        status = error.status if isinstance(error, RunFailedError) else "error"
        self._note(name, Measured(status, reason=str(error)))

    def _note(self, name: str, measured: Measured) -> None:
        self.found[name] = measured
        self._progress(name, measured)

    def finish(self, rules: Rules) -> list[str]:
        """Time the configs that are right and are not timed yet: their names, fastest first."""
        factor, best = self._options.early_stop_factor, self._best()
        limit = math.inf if factor is None or best is None else factor * best
        estimates = {name: ms for name, ms in self._estimates.items() if ms <= limit}
        for name in self.found.keys() - estimates.keys():
            self._bench.unload(name)
        for name in list(estimates):
            fitting = int(_WARMUP_MS / max(estimates[name], 1e-3))
            if self._sample(name, max(1, min(self._options.warmup, fitting))) is None:
                del estimates[name]
        race = Race(estimates, self._sample, rules, self._default)
        ranked = race.run()
        for name in ranked:
            del self._estimates[name]
            self._note(name, _measured(race.samples[name]))
        return ranked

    def _sample(self, name: str, count: int) -> list[float] | None:
        limit = self._options.timeout_s
        try:
            return self._bench.times(name, self._loadables[name], count, limit)
        except (RunFailedError, NoSecondContextError) as error:
            self._fail(name, error)
            return None


def _measured(samples: Samples) -> Measured:
    low, high = quartiles(samples.rounds)
    noisy = is_noisy(samples.rounds)
    return Measured("ok", samples.median, low, high, samples.runs, noisy=noisy, sure=samples.sure)


# -- checking ------------------------------------------------------------------------------------
# References are the user's code, which was not written for several threads.
_turn = forks.renewed_lock()


class ReferenceFailedError(TileopsError):
    """The reference program raised: no config can be blamed, and none can be compared."""


class Checker:
    """Compares results with those of ``ref_prog``, which runs once on inputs from ``inputs``."""

    def __init__(self, options: TuningOptions, inputs: Callable[[], list[Any]]) -> None:
        self._options = options
        self._inputs = inputs
        self._expected: tuple[list[torch.Tensor], list[Any]] | None = None

    def check(self, results: Sequence[torch.Tensor], op: Mapping[str, Any]) -> None:
        """Raise where ``results`` (returned, then written tensors) are wrong.

        ``op`` says which arguments the kernel writes. AssertionError, or what ``manual_check_prog``
        raises.
        """
        with _turn:
            options, found = self._options, list(results)
            expected, arguments = self._run_reference()
            if expected:
                found = found[: len(expected)]
            else:
                expected = [arguments[n] for n in written_arguments(op)]
            if options.manual_check_prog is not None:
                if options.manual_check_prog(found, expected) is False:
                    raise AssertionError("manual_check_prog returned False")
                return
            assert_all_close(
                found, expected, options.atol, options.rtol, options.max_mismatched_ratio
            )

    def _run_reference(self) -> tuple[list[torch.Tensor], list[Any]]:
        """The tensors that the reference returned, and its arguments after the call."""
        if self._expected is None:
            arguments = self._inputs()
            assert self._options.ref_prog is not None
            try:
                result = self._options.ref_prog(*arguments)
            except Exception as error:
                raise ReferenceFailedError(
                    f"ref_prog raised {type(error).__name__}: {error}"
                ) from error
            values = list(result) if isinstance(result, (tuple, list)) else [result]
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
            if result is not None and not tensors and self._options.manual_check_prog is None:
                raise ReferenceFailedError(
                    f"ref_prog gave {type(result).__name__}, expected a tensor, several, or None "
                    "where it writes into its arguments"
                )
            # A reference may return what it was given, or a view that later runs would change.
            self._expected = [t.detach().clone() for t in tensors], arguments
        return self._expected


# -- a user's own timer ----------------------------------------------------------------------------
class CustomTimer:
    """Compiles and times configs one after another (see ``search.Work``)."""

    chunk, effort = 1, 1.0

    def __init__(
        self,
        candidates: Mapping[str, _Candidate],
        build: Build,
        inputs: Sequence[Any],
        options: TuningOptions,
        progress: Progress,
    ) -> None:
        assert options.timer is not None
        self._candidates = candidates
        self._build = build
        self._inputs = inputs
        self._options = options
        self._checker = Checker(options, lambda: copies_of(inputs))
        self._timer: Callable[[Config, JITKernel, Sequence[Any]], object] = options.timer
        self._progress = progress
        self._runs = _TIMER_RUNS if SEARCHES[options.search].uses_effort else 1
        self._found: dict[str, Measured] = {}

    def compile(self, names: Sequence[str]) -> Iterator[tuple[str, _Candidate]]:
        """These configs with their programs: each is compiled when its turn comes."""
        return ((name, self._candidates[name]) for name in names)

    def check(self, names: Sequence[str], compiled: Iterator[tuple[str, _Candidate]]) -> None:
        """Compile, check and time these configs one after another."""
        del names
        for name, candidate in compiled:
            self._found[name] = self._try(*candidate)
            self._progress(name, self._found[name])

    def _try(self, config: Config, program: Program) -> Measured:
        stage, repeats = "compile_error", max(1, round(self._runs * self.effort))
        try:
            kernel = make_kernel(program.name, program, self._build)
            stage = "wrong_result"
            if self._options.checks:
                self._check(kernel)
            stage = "error"
            found = [
                self._timer(dict(config), kernel, copies_of(self._inputs)) for _ in range(repeats)
            ]
        except ReferenceFailedError:
            raise
        except Exception as error:  # whatever is wrong with a config is its own affair
            if stage == "compile_error" and isinstance(error, SharedMemoryError):
                stage = "shared_memory"
            is_plain = stage in ("shared_memory", "wrong_result")
            reason = f"{error}" if is_plain else f"{type(error).__name__}: {error}"
            return Measured(stage, reason=reason, where="caller")
        times = [_milliseconds(value) for value in found]
        wrong = [ms for ms in times if not 0 <= ms < math.inf]
        if wrong:
            return Measured("error", reason=f"the timer gave {wrong[0]}", where="caller")
        middle = float(statistics.median(times))
        return Measured("ok", middle, min(times), max(times), len(times), where="caller")

    def _check(self, kernel: JITKernel) -> None:
        """Compare what a call returns and then what it writes; raises where they are wrong."""
        op = state_of(kernel.name).registered().spec.to_json()
        inputs = copies_of(self._inputs)
        returned = kernel(*inputs)
        found = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        written = [inputs[n] for n in written_arguments(op)]
        self._checker.check([v for v in found if v is not None] + written, op)

    def measure(self) -> dict[str, Measured]:
        """What is known of the configs that were tried."""
        return dict(self._found)

    def decide(self, results: Mapping[str, Measured]) -> Answer:
        """All results, and the names of the right configs, fastest first."""
        return Answer.of(results)


def _milliseconds(value: Any) -> float:  # noqa: ANN401
    """A timer's answer as a number: also others' numbers and tensors of one element."""
    if hasattr(value, "__float__") and not isinstance(value, (bool, str)):
        with suppress(TypeError, ValueError, RuntimeError, OverflowError):
            return float(value)
    raise ArgumentTypeError(
        f"timer: expected milliseconds as a number, got {type(value).__name__} {value!r:.60}"
    )
