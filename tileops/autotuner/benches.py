"""Benches: where programs run for measurement, in a child that can be killed or in this process.

Both load what was compiled, run it on inputs like the caller's, and time it. A measuring child is
``python -m tileops.autotuner.benches <pipe>``.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from tileops import runtime, settings
from tileops.autotuner.inputs import clone, copies_of, packed, unpacked
from tileops.child import Child, ChildEndedError, ChildTimeoutError, Message, serve
from tileops.errors import TileopsError
from tileops.jit.loadable import LoadedOp
from tileops.profiler import Timer, timer_for

MODULE = "tileops.autotuner.benches"
# Importing torch and making a CUDA context; a busy machine with a slow disk takes a minute.
START_SECONDS = 300.0
# Words by which CUDA and the driver name errors after which a context runs nothing any more: those
# of a wrong address, and others.
_ADDRESS = (
    "illegal memory access",
    "illegal address",
    "misaligned address",
    "unspecified launch failure",
    "hardware stack error",
    "invalid address space",
    "global/shared address space",  # the runtime's words for an invalid address space
    "invalid program counter",
)
_FATAL = (*_ADDRESS, "illegal instruction", "device-side assert")


class RunFailedError(Exception):
    """A program could not be run; ``status`` is one of a measurement's.

    ``is_fatal``: the process can run nothing any more.
    """

    def __init__(self, status: str, reason: str, *, is_fatal: bool = False) -> None:
        self.status = status
        self.is_fatal = is_fatal
        super().__init__(reason)


class NoSecondContextError(TileopsError):
    """A child cannot use the device: another process holds it, or its memory is full."""


class ChildBench:
    """Runs programs in a child process; one that kills it costs a new child and nothing else.

    RunFailedError where a program fails.
    """

    def __init__(
        self, device: torch.device, inputs: Sequence[object], *, backend: str = "event"
    ) -> None:
        if str(device) == "cuda":
            # The child's current device is not the caller's.
            device = torch.device("cuda", torch.cuda.current_device())
        self.device = device
        self._backend = backend
        self._packed = packed(inputs)
        self._children: list[Child] = []  # the one that runs programs, after a crash also the next
        self._is_open = False  # whether the child has its device and inputs
        self._loaded: set[str] = set()

    def start(self, count: int = 1) -> None:
        """Start the child, and others in its place, without waiting for them."""
        while self._children and not self._children[0].is_alive:
            self._drop()
        # What a user's shell asks of tileops (strictness, logs) is about the user's process.
        environment = {**settings.as_environment(), "TILEOPS_STRICT": "0", "TILEOPS_LOG": ""}
        try:
            while len(self._children) < count:
                self._children.append(Child(MODULE, environment))
        except OSError as error:  # no interpreter to start, or no process to be had
            raise NoSecondContextError(f"no process could be started: {error}") from None

    def open(self) -> Child:
        """The child, which has its device and inputs; NoSecondContextError where it cannot."""
        self.start()
        child = self._children[0]
        if self._is_open:
            return child
        message = {
            "do": "open",
            "device": str(self.device),
            "backend": self._backend,
            "threads": torch.get_num_threads() if self.device.type == "cpu" else None,
            **self._packed,
        }
        try:
            child.ask({"do": "start"}, START_SECONDS)  # it reads from now on: rows do not wait
            answer = child.ask(message, START_SECONDS)
        except (ChildTimeoutError, ChildEndedError) as error:
            answer = {"reason": f"the measuring process could not start: {error}"}
        if answer.get("status") != "ok":
            self._drop()
            raise NoSecondContextError(answer["reason"])
        self._is_open = True
        return child

    def run(
        self, name: str, loadable: Mapping[str, Any], limit_s: float, *, returns: bool = True
    ) -> list[torch.Tensor]:
        """One run: what it returns and then what it wrote into, on the device of the inputs.

        Nothing without ``returns``: results take their time to travel.
        """
        answer = self._ask("run", name, limit_s, loadable=loadable, returns=returns)
        return unpacked(answer, self.device)

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        """Milliseconds of ``count`` runs."""
        return list(self._ask("times", name, limit_s, loadable=loadable, count=count)["times"])

    def unload(self, name: str) -> None:
        """Free the code of a program."""
        if self._is_open:
            with suppress(RunFailedError, NoSecondContextError):  # what ended has nothing loaded
                self._ask("unload", name, START_SECONDS)
        self._loaded.discard(name)

    def inputs(self) -> list[Any]:
        """The arguments that the programs run on, made anew: a reference may write into them."""
        return unpacked(self._packed, self.device)

    def _ask(self, do: str, name: str, limit_s: float, **given: object) -> Message:
        child = self.open()
        message = {"do": do, "name": name, **given}
        if name in self._loaded:  # by this child
            message.pop("loadable", None)
        try:
            answer = child.ask(message, limit_s)
        except ChildTimeoutError as error:
            answer = {"status": "timeout", "reason": f"{error}", "is_fatal": True}
        except ChildEndedError as error:
            crashed = error.status in (-signal.SIGSEGV, -signal.SIGBUS)
            status = "illegal_access" if crashed else "error"
            reason = f"the measuring process was {error}"
            answer = {"status": status, "reason": reason, "is_fatal": True}
        if answer["status"] == "ok":
            self._loaded.add(name)
            return answer
        if answer["is_fatal"]:
            # Where one config kills its process others will: the next one imports torch meanwhile.
            self._drop()
            with suppress(NoSecondContextError):  # opening says so again
                self.start(2)
        raise RunFailedError(answer["status"], answer["reason"])

    def _drop(self) -> None:
        """End the child; the next one takes its place."""
        self._is_open, self._loaded = False, set()
        if self._children:
            self._children.pop(0).kill()

    def close(self) -> None:
        """End the children."""
        while self._children:
            self._drop()


class LocalBench:
    """Runs programs in this process: nothing protects it from them, and limits mean nothing.

    Programs never write into ``inputs``: they get copies of what they write.
    """

    def __init__(
        self, device: torch.device, inputs: Sequence[Any], *, backend: str = "event"
    ) -> None:
        self._device = device
        self._timer: Timer | None = None
        self._backend = backend
        self._inputs = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
        self._ops: dict[str, LoadedOp] = {}
        # One set of copies for all configs: they are put back before each run.
        self._copies: dict[tuple[int, ...], list[Any]] = {}

    def load(self, name: str, loadable: Mapping[str, Any]) -> LoadedOp:
        """The program that ``loadable`` describes, registered once under ``name``."""
        if name not in self._ops:
            self._ops[name] = LoadedOp(loadable)
        return self._ops[name]

    def run(
        self, name: str, loadable: Mapping[str, Any], limit_s: float, *, returns: bool = True
    ) -> list[torch.Tensor]:
        """As ``ChildBench.run``."""
        with _failures():
            op = self.load(name, loadable)
            arguments = self._arguments(op)
            result = op.call(arguments, self._device)
            written = [arguments[n] for n in op.written]
            if self._device.type == "cuda":  # its errors belong to this run
                torch.cuda.synchronize(self._device)
            tensors = [*result, *(t for t in written if isinstance(t, torch.Tensor))]
        return tensors if returns else []

    def _arguments(self, op: LoadedOp) -> list[Any]:
        """The arguments of a call, those that it writes into copied."""
        return [
            clone(value) if n in op.written and isinstance(value, torch.Tensor) else value
            for n, value in enumerate(self._inputs)
        ]

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        """As ``ChildBench.times``; what a run wrote is put back before the next."""
        with _failures():
            op = self.load(name, loadable)
            if op.written not in self._copies:
                self._copies[op.written] = self._arguments(op)
            arguments = self._copies[op.written]
            if self._timer is None:
                self._timer = timer_for(self._device, self._backend)

            def restore() -> None:
                for n in op.written:
                    if isinstance(arguments[n], torch.Tensor):
                        arguments[n].copy_(self._inputs[n])

            before = restore if op.written else None
            return self._timer.times(lambda: op.call(arguments, self._device), count, before)

    def unload(self, name: str) -> None:
        """As ``ChildBench.unload``."""
        op = self._ops.pop(name, None)
        # Two configs may be one program.
        if op is not None and all(o.handle != op.handle for o in self._ops.values()):
            runtime.unload(op.handle)

    def inputs(self) -> list[Any]:
        """As ``ChildBench.inputs``."""
        return copies_of(self._inputs)

    def close(self) -> None:
        """Free the code of all programs."""
        for name in list(self._ops):
            self.unload(name)


Bench = ChildBench | LocalBench


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except RunFailedError:
        raise
    except Exception as error:
        status, is_fatal = status_of(error)
        reason = f"{type(error).__name__}: {error}"
        raise RunFailedError(status, reason, is_fatal=is_fatal) from error


def status_of(error: Exception) -> tuple[str, bool]:
    """The status that an error while running means, and whether the process must end."""
    text = str(error).lower()
    is_address = any(words in text for words in _ADDRESS)
    is_fatal = any(words in text for words in _FATAL)
    return "illegal_access" if is_address else "error", is_fatal


# -- the measuring child's process -----------------------------------------------------------------
class Server:
    """Answers requests by their ``do``: start, open, run, times, unload.

    The first run of a program, or the first times, come with its ``loadable``.

    An answer has status ok and what was asked for, or another status with ``reason``, and
    ``is_fatal`` where the process can run nothing any more.
    """

    _bench: LocalBench  # once its device is open

    def answer(self, message: Message) -> Message:
        """The answer to one request; no error leaves it."""
        try:
            with _failures():
                return {"status": "ok", **self._done(**message)}
        except RunFailedError as error:  # a program that fails is an answer
            return {"status": error.status, "reason": str(error), "is_fatal": error.is_fatal}

    def _done(self, do: str, name: str = "", **given: Any) -> Message:  # noqa: ANN401
        loadable = given.get("loadable", {})
        if do == "open":
            self._bench = _opened(**given)
        elif do == "unload":
            self._bench.unload(name)
        elif do == "times":
            return {"times": self._bench.times(name, loadable, given["count"], math.inf)}
        elif do == "run":
            results = self._bench.run(name, loadable, math.inf, returns=given["returns"])
            return packed(results, exact=True)
        elif do != "start":
            raise ValueError(f"no such request: {do}")
        return {}


def _opened(device: str, backend: str, threads: int | None, **inputs: Any) -> LocalBench:  # noqa: ANN401
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
        torch.zeros(1, device=place)  # makes the context, or says why there can be none
    if threads is not None:
        torch.set_num_threads(threads)
    return LocalBench(place, unpacked(inputs, place), backend=backend)


if __name__ == "__main__":
    serve(Server().answer)
