"""Owns the processes of a tuning: the compile workers, and a bench on each device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from tileops import log
from tileops.autotuner.benches import Bench, ChildBench, LocalBench, NoSecondContextError
from tileops.autotuner.compilers import CompilePool


class Workshop:
    """Workers and benches for some tunings of one call; close it, or use it in a ``with``.

    ``devices``: where to measure, the caller's first. ``inputs`` are the arguments of the call.
    ``cache_dir`` is where workers compile to (empty: nothing is kept). ``isolated`` false measures
    in this process. Processes start with ``start`` or when first needed.
    """

    def __init__(
        self,
        devices: Sequence[torch.device],
        inputs: Sequence[Any],
        cache_dir: str,
        *,
        compile_timeout_s: float = 300.0,
        workers: int | None = None,
        backend: str = "event",
        isolated: bool = True,
    ) -> None:
        self._devices = tuple(devices)
        self._inputs = list(inputs)
        self._backend = backend
        self._isolated = isolated
        self._children: list[ChildBench] = []
        self._benches: list[tuple[str, Bench]] | None = None
        self.pool = CompilePool(cache_dir, compile_timeout_s, workers)

    def start(self, jobs: int) -> None:
        """Start the processes for so many jobs without waiting for them."""
        if self._isolated and not self._children:
            for device in self._devices:
                bench = ChildBench(device, self._inputs, backend=self._backend)
                self._children.append(bench)
                with suppress(NoSecondContextError):  # opening it says so again
                    bench.start()
        self.pool.start(jobs)

    def benches(self) -> list[tuple[str, Bench]]:
        """A bench for each device that can be used, with the device's name; the caller's first."""
        if self._benches is None:
            self.start(0)
            self._benches = self._open()
        return self._benches

    def _open(self) -> list[tuple[str, Bench]]:
        opened: list[tuple[str, Bench]] = []
        for number, device in enumerate(self._devices):
            if not self._isolated:
                return [(str(device), self._local(device))]
            try:
                self._children[number].open()
                opened.append((str(device), self._children[number]))
            except NoSecondContextError as error:
                if number > 0:
                    log.warn_once(
                        f"tune.skip.{device}", f"tuning goes on without {device}: {error}"
                    )
                    continue
                log.warn_once(
                    "tune.local",
                    "tuning measures in this process, where a config that fails can take it down: "
                    f"{error}",
                )
                opened.append((str(device), self._local(device)))
        return opened

    def _local(self, device: torch.device) -> LocalBench:
        return LocalBench(device, self._inputs, backend=self._backend)

    def close(self) -> None:
        """End the workers and the children."""
        self.pool.close()
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
