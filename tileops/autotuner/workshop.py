"""The processes of a tuning: workers compile its configs, a bench on each device measures them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from tileops import log, settings
from tileops.autotuner.benches import Bench, ChildBench, LocalBench, NoSecondContextError
from tileops.autotuner.database import Measured
from tileops.autotuner.measuring import Checker, Measurement, Progress
from tileops.autotuner.ranks import Answer
from tileops.autotuner.rounds import Rules
from tileops.cache.directory import resolve
from tileops.jit.compile_workers import Compiled, CompilePool, worker_count
from tileops.jit.compiling import Request
from tileops.jit.loadable import found_in_cache

if TYPE_CHECKING:
    from tileops.autotuner.param import TuningOptions
    from tileops.autotuner.ranks import Share

_COMPILE_SECONDS = 300.0
# Cards of one model differ by a few percent: what was measured on several is raced again on one.
_BETWEEN_CARDS = 0.06


class Workshop:
    """Compiles and measures the configs of one tuning (see ``ranks.Work``).

    ``requests`` are the configs by name, and ``inputs`` the arguments of a call. The first of
    ``devices`` is the caller's, and decides. Not ``isolated``: measured in this process.
    ``default`` names the config that runs without tuning. ``share``: other ranks work too.
    Programs are compiled into the current cache directory. What a config does is in its outcome;
    errors raised here are faults of the machine or of the reference program. ``progress`` hears of
    each outcome, from any thread, one at a time. Close it, or use it in a ``with`` statement.
    """

    def __init__(
        self,
        requests: Mapping[str, Request],
        inputs: Sequence[Any],
        options: TuningOptions,
        devices: Sequence[torch.device],
        *,
        isolated: bool = True,
        default: str | None = None,
        share: Share | None = None,
        progress: Progress | None = None,
        workers: int | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._requests = requests
        self._inputs = list(inputs)
        self._options = options
        self._devices = tuple(devices) if isolated else tuple(devices)[:1]
        self._default = default
        self._rank = None if share is None else share.rank
        self._progress = progress or (lambda name, measured: None)
        self._base_rules = rules or Rules()
        # Several cards measure a share each; the best of all race once more on one card.
        self._is_shared = share is not None or len(self._devices) > 1
        if share is not None and workers is None:
            # The ranks of a host share its processors; those of other hosts cannot be told apart.
            workers = max(1, worker_count() // share.world)
        directory = resolve(settings.current()).private
        cache_dir = "" if directory is None else str(directory.root)
        self._pool = CompilePool(cache_dir, _COMPILE_SECONDS, workers)
        self._compiled: dict[str, Compiled] = {}
        self._guard = threading.Lock()
        self._benches: list[tuple[str, Bench]] | None = None
        self._isolated = isolated
        self._children: list[ChildBench] = []  # they start in the ``with`` block, which ends them
        self.begin(1.0)

    def begin(self, effort: float) -> None:
        """Forget what was measured, and measure with this share of the full effort."""
        rules = replace(self._base_rules, rep=max(1, round(self._options.rep * effort)))
        if effort < 1:
            rules = replace(rules, least=min(rules.least, 2), finalists=0)
        self._rules = rules
        self._found: dict[str, Measured] = {}
        self._measurements: list[Measurement] | None = None

    # -- benches ---------------------------------------------------------------------------------
    def _start_children(self) -> None:
        """Start the children without waiting for them."""
        for device in self._devices if self._isolated and not self._children else ():
            bench = ChildBench(device, self._inputs, backend=self._options.backend)
            self._children.append(bench)
            with suppress(NoSecondContextError):  # opening it says so again
                bench.start()

    def benches(self) -> list[tuple[str, Bench]]:
        """A bench for each device that can be used, with the device's name; the caller's first."""
        if self._benches is None:
            self._start_children()
            found = [(str(d), self._bench(place, d)) for place, d in enumerate(self._devices)]
            self._benches = [(name, bench) for name, bench in found if bench is not None]
        return self._benches

    def _bench(self, place: int, device: torch.device) -> Bench | None:
        if self._isolated:
            try:
                self._children[place].open()
            except NoSecondContextError as error:
                if place > 0:
                    log.warn_once(
                        f"tune.skip.{device}", f"tuning goes on without {device}: {error}"
                    )
                    return None
                log.warn_once(
                    "tune.local",
                    "tuning measures in this process, where a config that fails can take it down: "
                    f"{error}",
                )
            else:
                return self._children[place]
        return LocalBench(device, self._inputs, backend=self._options.backend)

    def _ready(self) -> list[Measurement]:
        """A measurement on each device that can be used, the caller's device first."""
        if self._measurements is None:
            rules = replace(self._rules, finalists=0) if self._is_shared else self._rules
            self._measurements = [self._on(*found, rules) for found in self.benches()]
        return self._measurements

    def _on(self, device: str, bench: Bench, rules: Rules) -> Measurement:
        where = device if self._rank is None else f"rank {self._rank} {device}"
        return Measurement(
            bench,
            Checker(self._options, bench.inputs),
            self._options,
            rules,
            lambda name, measured: self._note(name, replace(measured, where=where)),
            self._default,
        )

    def _usable(self) -> list[Measurement]:
        """The measurements whose device is there; at least one."""
        return [m for m in self._ready() if not m.is_gone] or self._ready()[:1]

    def _note(self, name: str, measured: Measured) -> None:
        with self._guard:
            self._found[name] = measured
            self._progress(name, measured)

    # -- compiling -------------------------------------------------------------------------------
    def _compile(self, names: Sequence[str]) -> Iterator[tuple[str, Compiled]]:
        """What these configs compile to, as it comes: first what is known. Workers start now."""
        for name in names:
            if name not in self._compiled and (found := _stored(self._requests[name])):
                self._compiled[name] = found
        known = {name: self._compiled[name] for name in names if name in self._compiled}
        missing = {name: self._requests[name] for name in names if name not in known}
        self._pool.start(len(missing))
        fresh = self._pool.compile(missing)
        return chain(known.items(), ((n, self._compiled.setdefault(n, c)) for n, c in fresh))

    # -- ranks.Work ------------------------------------------------------------------------------
    @property
    def chunk(self) -> int:
        """How many configs a rank takes at a time: enough to keep its workers busy."""
        return max(1, min(worker_count(), -(-len(self._requests) // 4)))

    def look(self, names: Sequence[str]) -> None:
        """Compile these configs, and run each once on the next free device."""
        self._start_children()
        done = self._compile(names)
        taking = threading.Lock()
        measurements = self._usable()
        # A look is short beside the timing, which each device does of what it looked at.
        most = -(-len(names) // len(measurements))

        def serve(measurement: Measurement) -> None:
            looked = 0
            while looked < most and not (measurement.is_gone and len(measurements) > 1):
                with taking:
                    found = next(done, None)
                if found is None:
                    return
                looked += self._add(measurement, *found)

        _in_parallel(serve, measurements)
        for found in done:  # the share of a device that is gone
            self._add(self._usable()[0], *found)
        self._reassign_lost()

    def _add(self, measurement: Measurement, name: str, compiled: Compiled) -> bool:
        """Let a device look at a config; False for one that did not compile."""
        if compiled.loadable is None:
            self._note(name, Measured(compiled.status, reason=compiled.reason))
        else:
            measurement.add(name, compiled.loadable)
        return compiled.loadable is not None

    def _reassign_lost(self) -> bool:
        """Reassign configs from lost devices to a live one; whether there were any."""
        found = False
        while not (measurement := self._usable()[0]).is_gone:
            lost = [item for m in self._ready() for item in m.take_lost().items()]
            if not lost:
                break
            found = True
            for name, loadable in lost:
                measurement.add(name, loadable)
        return found

    def results(self) -> dict[str, Measured]:
        """Time what was looked at since the last time, each device its own share."""
        is_left = True
        while is_left:
            _in_parallel(lambda measurement: measurement.finish(), self._ready())
            is_left = self._reassign_lost()
        return dict(self._found)

    def decide(self, results: Mapping[str, Measured]) -> Answer:
        """The ranking; what several devices measured is raced again on the first one here."""
        self._found.update(results)
        answer = Answer.of(self._found)
        if self._is_shared and len(answer.ranking) > 1:
            return self._final(answer)
        return answer

    def _final(self, answer: Answer) -> Answer:
        times = {name: self._found[name].latency or 0.0 for name in answer.ranking}
        limit = min(times.values()) * (1 + _BETWEEN_CARDS)
        finalists = [n for n, ms in times.items() if ms <= limit and n in self._requests]
        place = next((n for n, m in enumerate(self._ready()) if not m.is_gone), 0)
        race = self._on(*self.benches()[place], self._rules)
        for name, compiled in self._compile(finalists[: self._rules.finalists]):
            if compiled.loadable is not None:
                race.add(name, compiled.loadable)
        order = race.finish()
        if race.is_gone:  # what was measured before the device went is the answer
            return answer
        rest = [name for name in Answer.of(self._found).ranking if name not in order]
        return Answer.of(self._found, [*order, *rest])

    def close(self) -> None:
        """End the workers and the children, and free what this process loaded."""
        # Measurements know this object: what they hold on the device goes now, not at a collection.
        self._measurements = None
        self._pool.close()
        for child in self._children:
            child.close()
        for _, bench in self._benches or []:
            if isinstance(bench, LocalBench):
                bench.close()
        self._children, self._benches = [], None

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
