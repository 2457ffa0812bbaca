"""The processes of a tuning: workers compile its configs, a bench on each device measures them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from tileops import log, settings
from tileops.autotuner.benches import Bench, ChildBench, LocalBench, NoSecondContextError
from tileops.autotuner.database import Answer, Measured
from tileops.autotuner.measuring import Measurement, Progress
from tileops.autotuner.rounds import Rules
from tileops.cache.directory import resolve
from tileops.jit.compile_workers import Compiled, CompilePool, worker_count
from tileops.jit.compiling import Request
from tileops.jit.loadable import found_in_cache

if TYPE_CHECKING:
    from tileops.autotuner.param import TuningOptions
    from tileops.autotuner.ranks import JointTuning

_COMPILE_SECONDS = 300.0
# Cards of one model differ by a few percent: what was measured on several is raced again on one.
_BETWEEN_CARDS = 0.06


class Workshop:
    """Compiles and measures the configs of one tuning (see ``search.Work``).

    ``requests`` are the configs by name, and ``inputs`` the arguments of a call. The first of
    ``devices`` is the caller's, and decides. Not ``isolated``: measured in this process.
    ``default`` names the config that runs without tuning. ``joint``: other ranks work too.
    Programs are compiled into the current cache directory. What a config does is in its outcome;
    errors raised here are faults of the machine or of the reference program. ``progress`` hears of
    each outcome, from any thread, one at a time. Close it, or use it in a ``with`` statement.
    """

    effort = 1.0

    def __init__(
        self,
        requests: Mapping[str, Request],
        inputs: Sequence[Any],
        options: TuningOptions,
        devices: Sequence[torch.device],
        *,
        isolated: bool = True,
        default: str | None = None,
        joint: JointTuning | None = None,
        progress: Progress | None = None,
        workers: int | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._requests = requests
        self._inputs = list(inputs)
        self._options = options
        self._devices = tuple(devices) if isolated else tuple(devices)[:1]
        self._is_isolated = isolated
        self._default = default
        self._place = "" if joint is None else f"rank {joint.rank} "
        self._progress = progress or (lambda name, measured: None)
        self._full_rules = rules or Rules()
        # Several cards measure a share each; the best of all race once more on one card.
        self._is_shared = joint is not None or len(self._devices) > 1
        if joint is not None and workers is None:
            # The ranks of a host share its processors; those of other hosts cannot be told apart.
            workers = max(1, worker_count() // joint.world)
        directory = resolve(settings.current()).private
        cache_dir = "" if directory is None else str(directory.root)
        self._pool = CompilePool(cache_dir, _COMPILE_SECONDS, workers)
        self._compiled: dict[str, Compiled] = {}
        self._guard = threading.Lock()
        self._found: dict[str, Measured] = {}
        self._benches: dict[str, Bench] = {}
        self._measurements: list[Measurement] = []

    # -- benches ---------------------------------------------------------------------------------
    def benches(self) -> dict[str, Bench]:
        """A bench for each device that can be used, by its name; the caller's first."""
        if self._benches:
            return self._benches
        own, backend = str(self._devices[0]), self._options.backend
        devices = self._devices if self._is_isolated else ()
        children = {str(d): ChildBench(d, self._inputs, backend=backend) for d in devices}
        self._benches.update(children)
        for child in children.values():
            with suppress(NoSecondContextError):  # opening it says so again
                child.start()
        for name, child in children.items():
            try:
                child.open()
            except NoSecondContextError as error:
                self._benches.pop(name).close()
                if name != own:
                    log.warn_once(f"tune.skip.{name}", f"tuning goes on without {name}: {error}")
                    continue
                log.warn_once(
                    "tune.local",
                    "tuning measures in this process, where a config that fails can take it down: "
                    f"{error}",
                )
        if own not in self._benches:
            local = LocalBench(self._devices[0], self._inputs, backend=backend)
            self._benches = {own: local, **self._benches}
        return self._benches

    def _ready(self) -> list[Measurement]:
        """A measurement on each device that can be used, the caller's device first."""
        if not self._measurements:
            self._measurements = [
                Measurement(bench, self._options, partial(self._note, device), self._default)
                for device, bench in self.benches().items()
            ]
        return self._measurements

    def _usable(self) -> list[Measurement]:
        """The measurements whose device is there; at least one."""
        return [m for m in self._ready() if not m.is_gone] or self._ready()[:1]

    def _note(self, device: str, name: str, measured: Measured) -> None:
        with self._guard:
            self._found[name] = replace(measured, where=self._place + device)
            self._progress(name, self._found[name])

    # -- search.Work -----------------------------------------------------------------------------
    @property
    def chunk(self) -> int:
        """How many configs a rank takes at a time: enough to keep its workers busy."""
        return max(1, min(worker_count(), -(-len(self._requests) // 4)))

    def compile(self, names: Sequence[str]) -> Iterator[tuple[str, Compiled]]:
        """What these configs compile to, as it comes: first what is known. Workers start now."""
        for name in names:
            if name not in self._compiled and (found := _stored(self._requests[name])):
                self._compiled[name] = found
        known = {name: self._compiled[name] for name in names if name in self._compiled}
        missing = {name: self._requests[name] for name in names if name not in known}
        self._pool.start(len(missing))
        fresh = self._pool.compile(missing)
        return chain(known.items(), ((n, self._compiled.setdefault(n, c)) for n, c in fresh))

    def check(self, names: Sequence[str], compiled: Iterator[tuple[str, Compiled]]) -> None:
        """Run each of these configs once as it is compiled, on the next free device."""
        taking = threading.Lock()
        measurements = self._usable()
        # A look is short beside the timing, which each device does of what it looked at.
        most = -(-len(names) // len(measurements))

        def serve(measurement: Measurement) -> None:
            looked = 0
            while looked < most and not measurement.is_gone:
                with taking:
                    found = next(compiled, None)
                if found is None:
                    return
                looked += self._add(measurement, *found)

        _in_parallel(serve, measurements)
        for found in compiled:  # the share of devices that are gone
            self._add(self._usable()[0], *found)
        self._reassign_lost()

    def _add(self, measurement: Measurement, name: str, compiled: Compiled) -> bool:
        """Let a device look at a config; False for one that did not compile."""
        if compiled.loadable is None:
            self._note("", name, Measured(compiled.status, reason=compiled.reason))
        else:
            measurement.add(name, compiled.loadable)
        return compiled.loadable is not None

    def _reassign_lost(self) -> bool:
        """Reassign configs from lost devices to a live one; whether there were any."""
        measurement, found = self._usable()[0], False
        for gone in self._ready() if not measurement.is_gone else ():
            while gone.lost:
                found = True
                name = gone.lost.pop()
                self._add(measurement, name, self._compiled[name])
        return found

    def measure(self) -> dict[str, Measured]:
        """Time what was checked since the last time, each device its own share."""
        rules = self._rules()
        if self._is_shared:
            rules = replace(rules, finalists=0)
        while True:
            _in_parallel(lambda measurement: measurement.finish(rules), self._ready())
            if not self._reassign_lost():
                return dict(self._found)

    def _rules(self) -> Rules:
        full = self._full_rules
        rules = replace(full, rep=max(1, round(self._options.rep * self.effort)))
        return replace(rules, least=min(full.least, 2), finalists=0) if self.effort < 1 else rules

    def decide(self, results: Mapping[str, Measured]) -> Answer:
        """The ranking; what several devices measured is raced again on the first one here."""
        answer, rules = Answer.of(results), self._rules()
        if not self._is_shared or len(answer.ranking) < 2:
            return answer
        times = {name: results[name].latency or 0.0 for name in answer.ranking}
        limit = min(times.values()) * (1 + _BETWEEN_CARDS)
        close = [n for n, ms in times.items() if ms <= limit and n in self._requests]
        finalists, race = close[: rules.finalists], self._usable()[0]
        for name, compiled in self.compile(finalists):
            if compiled.loadable is not None:
                race.add(name, compiled.loadable)
        order = race.finish(rules)
        if race.is_gone:  # what was measured before the device went is the answer
            return answer
        again = {name: self._found[name] for name in finalists if name in self._found}
        outcomes = {**results, **again}
        rest = [name for name in Answer.of(outcomes).ranking if name not in order]
        return Answer(outcomes, [*order, *rest])

    def close(self) -> None:
        """End the workers and the children, and free what this process loaded."""
        # Measurements know this object: what they hold on the device goes now, not at a collection.
        self._measurements = []
        self._pool.close()
        for bench in self._benches.values():
            bench.close()
        self._benches = {}

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def _stored(request: Request) -> Compiled | None:
    """What the cache holds on disk, from where other processes can load it."""
    found = found_in_cache(request)
    if found is None or any(image["path"] is None for image in found[1]["images"].values()):
        return None
    return Compiled("ok", hash=found[0], loadable=found[1])


def _in_parallel(do: Callable[[Measurement], object], measurements: Sequence[Measurement]) -> None:
    if len(measurements) == 1:
        do(measurements[0])
        return
    with ThreadPoolExecutor(max_workers=len(measurements)) as pool:
        for result in [pool.submit(do, measurement) for measurement in measurements]:
            result.result()
