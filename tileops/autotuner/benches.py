"""Owns the places where programs run for measurement: a child that can be killed, or this process.

Both load what was compiled, run it on inputs like the caller's, and time it.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch

from tileops import settings
from tileops.autotuner.arena import Arena
from tileops.autotuner.inputs import clone, make_inputs, recipe_of
from tileops.autotuner.pipes import Child, ChildEndedError, ChildTimeoutError, Message
from tileops.autotuner.running import Runner, status_of
from tileops.errors import TileopsError

MODULE = "tileops.autotuner.child"
# Importing torch and making a CUDA context; a busy machine with a slow disk takes a minute.
START_SECONDS = 300.0


class RunFailedError(Exception):
    """A program could not be run; ``status`` is one of a measurement's."""

    def __init__(self, status: str, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class NoSecondContextError(TileopsError):
    """A child cannot use the device: another process holds it, or its memory is full."""


class Bench(Protocol):
    """Runs and times programs on one device; RunFailedError where one fails."""

    def run(
        self, name: str, loadable: Mapping[str, Any], limit_s: float, *, returns: bool = True
    ) -> list[torch.Tensor]:
        """One run: what it returns and then what it wrote into, on the device of the inputs.

        Nothing without ``returns``: results take their time to travel.
        """

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        """Milliseconds of ``count`` runs."""

    def unload(self, name: str) -> None:
        """Free the code of a program."""

    def inputs(self) -> list[Any]:
        """The arguments that the programs run on, made anew: a reference may write into them."""

    def close(self) -> None:
        """Free what the bench holds."""


class ChildBench:
    """Runs programs in a child process; one that kills it costs a new child and nothing else."""

    def __init__(
        self,
        device: torch.device,
        inputs: Sequence[object],
        *,
        backend: str = "event",
        seed: int = 0,
    ) -> None:
        if str(device) == "cuda":
            # The child's current device is not the caller's.
            device = torch.device("cuda", torch.cuda.current_device())
        self.device = device
        self._backend = backend
        self._arena = Arena()
        self._recipe, self._free = recipe_of(inputs, self._arena, seed)
        self._child: Child | None = None
        self._spare: Child | None = None
        self._is_open = False
        self._loaded: set[str] = set()

    def start(self) -> None:
        """Start the child without waiting for it."""
        if self._child is None or not self._child.is_alive:
            try:
                self._child = self._spare or self._new()
            except OSError as error:  # no interpreter to start, or no process to be had
                raise NoSecondContextError(f"no process could be started: {error}") from None
            self._spare = None
            self._is_open = False
            self._loaded.clear()

    def _new(self) -> Child:
        # What a user's shell asks of tileops (strictness, logs) is about the user's process.
        environment = {**settings.as_environment(), "TILEOPS_STRICT": "0", "TILEOPS_LOG": ""}
        return Child(MODULE, environment, self._arena.descriptor)

    def open(self) -> None:
        """Wait until the child has its device and inputs; NoSecondContextError where it cannot."""
        self._ready()

    def _ready(self) -> Child:
        self.start()
        child = self._child
        assert child is not None
        if self._is_open:
            return child
        threads = torch.get_num_threads() if self.device.type == "cpu" else None
        opening = {
            "do": "open", "device": str(self.device), "backend": self._backend, "threads": threads,
        }  # fmt: skip
        for message in (opening, {"do": "inputs", "recipe": self._recipe}):
            try:
                answer = child.ask(message, START_SECONDS)
            except (ChildTimeoutError, ChildEndedError) as error:
                self._drop()
                raise NoSecondContextError(
                    f"the measuring process could not start: {error}"
                ) from None
            if answer["status"] != "ok":
                self._drop()
                raise NoSecondContextError(answer["reason"])
        self._is_open = True
        return child

    def run(
        self, name: str, loadable: Mapping[str, Any], limit_s: float, *, returns: bool = True
    ) -> list[torch.Tensor]:
        """As ``Bench.run``."""
        self._load(name, loadable, limit_s)
        message = {"do": "run", "name": name, "returns": returns, "at": self._free}
        return [self._result(item) for item in self._ask(message, limit_s)["results"]]

    def _result(self, item: Mapping[str, Any]) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, item["dtype"])
        count = dtype.itemsize
        for extent in item["shape"]:
            count *= extent
        row = self._arena.get(item["at"], count).view(dtype)
        return row.reshape(item["shape"]).to(self.device)

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        """As ``Bench.times``."""
        self._load(name, loadable, limit_s)
        return list(self._ask({"do": "times", "name": name, "count": count}, limit_s)["times"])

    def _load(self, name: str, loadable: Mapping[str, Any], limit_s: float) -> None:
        self._ready()
        if name not in self._loaded:
            self._ask({"do": "load", "name": name, "loadable": dict(loadable)}, limit_s)
            self._loaded.add(name)

    def unload(self, name: str) -> None:
        """As ``Bench.unload``."""
        if name in self._loaded:
            self._loaded.discard(name)
            with suppress(RunFailedError):  # a child that ended has nothing loaded
                self._ask({"do": "unload", "name": name}, START_SECONDS)

    def inputs(self) -> list[Any]:
        """As ``Bench.inputs``."""
        return make_inputs(self._recipe, self._arena, self.device)

    def _ask(self, message: Message, limit_s: float) -> Message:
        child = self._ready()
        try:
            answer = child.ask(message, limit_s)
        except ChildTimeoutError as error:
            self._replace()
            raise RunFailedError("timeout", f"{error}") from None
        except ChildEndedError as error:
            self._replace()
            crashed = error.status in (-signal.SIGSEGV, -signal.SIGBUS)
            status = "illegal_access" if crashed else "error"
            raise RunFailedError(status, f"the measuring process was {error}") from None
        if answer["status"] == "ok":
            return answer
        if answer["is_fatal"]:
            self._replace()
        status = "error" if answer["status"] == "out_of_memory" else answer["status"]
        raise RunFailedError(status, answer["reason"])

    def _replace(self) -> None:
        # Where one config kills its process others will: the next one imports torch meanwhile.
        self._drop()
        self.start()
        self._spare = self._new()

    def _drop(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._child = None
        self._is_open = False
        self._loaded.clear()

    def close(self) -> None:
        """As ``Bench.close``."""
        self._drop()
        if self._spare is not None:
            self._spare.kill()
            self._spare = None
        self._arena.close()


class LocalBench:
    """Runs programs in this process: nothing protects it from what they do."""

    def __init__(
        self, device: torch.device, inputs: Sequence[Any], *, backend: str = "event"
    ) -> None:
        self.device = device
        self._runner = Runner(device, backend)
        self._given = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
        self._runner.set_inputs(self._given)
        self._loaded: set[str] = set()

    def run(
        self, name: str, loadable: Mapping[str, Any], limit_s: float, *, returns: bool = True
    ) -> list[torch.Tensor]:
        """As ``Bench.run``; ``limit_s`` means nothing."""
        del limit_s
        try:
            self._load(name, loadable)
            results = self._runner.run(name)
            return results if returns else []
        except Exception as error:
            raise _failed(error) from error

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        """As ``Bench.times``; ``limit_s`` means nothing."""
        del limit_s
        try:
            self._load(name, loadable)
            return self._runner.times(name, count)
        except Exception as error:
            raise _failed(error) from error

    def _load(self, name: str, loadable: Mapping[str, Any]) -> None:
        self._runner.load(name, loadable)
        self._loaded.add(name)

    def unload(self, name: str) -> None:
        """As ``Bench.unload``."""
        self._runner.unload(name)
        self._loaded.discard(name)

    def inputs(self) -> list[Any]:
        """As ``Bench.inputs``."""
        return [clone(v) if isinstance(v, torch.Tensor) else v for v in self._given]

    def close(self) -> None:
        """As ``Bench.close``."""
        for name in list(self._loaded):
            self.unload(name)


def _failed(error: Exception) -> RunFailedError:
    status, _ = status_of(error)
    return RunFailedError(status, f"{type(error).__name__}: {error}")
