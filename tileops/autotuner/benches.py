"""Benches: where programs run for measurement, in a child that can be killed or in this process.

Both load what was compiled, run it on inputs like the caller's, and time it. A measuring child is
``python -m tileops.autotuner.benches <descriptor of the arena>``.
"""

from __future__ import annotations

import hashlib
import math
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from tileops import forks, runtime, settings
from tileops.autotuner.pipes import Child, ChildEndedError, ChildTimeoutError, Message, serve
from tileops.autotuner.recipes import Arena, clone, copies_of, make_inputs, recipe_of
from tileops.errors import ArgumentError, TileopsError
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
    """A program could not be run; ``status`` is one of a measurement's."""

    def __init__(self, status: str, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class NoSecondContextError(TileopsError):
    """A child cannot use the device: another process holds it, or its memory is full."""


class ChildBench:
    """Runs programs in a child process; one that kills it costs a new child and nothing else.

    RunFailedError where a program fails.
    """

    def __init__(
        self,
        device: torch.device,
        inputs: Sequence[object],
        *,
        backend: str = "event",
    ) -> None:
        if str(device) == "cuda":
            # The child's current device is not the caller's.
            device = torch.device("cuda", torch.cuda.current_device())
        self.device = device
        self._backend = backend
        self._arena = Arena()
        self._recipe, self._free = recipe_of(inputs, self._arena)
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

    def open(self) -> Child:
        """The child, which has its device and inputs; NoSecondContextError where it cannot."""
        self.start()
        child = self._child
        assert child is not None
        if self._is_open:
            return child
        message = {
            "do": "open",
            "device": str(self.device),
            "backend": self._backend,
            "threads": torch.get_num_threads() if self.device.type == "cpu" else None,
            "recipe": self._recipe,
        }
        try:
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
        self._load(name, loadable, limit_s)
        message = {"do": "run", "name": name, "returns": returns, "at": self._free}
        return [self._result(item) for item in self._ask(message, limit_s)["results"]]

    def _result(self, item: Mapping[str, Any]) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, item["dtype"])
        count = dtype.itemsize * math.prod(item["shape"])
        row = self._arena.get(item["at"], count).view(dtype)
        return row.reshape(item["shape"]).to(self.device)

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        """Milliseconds of ``count`` runs."""
        self._load(name, loadable, limit_s)
        return list(self._ask({"do": "times", "name": name, "count": count}, limit_s)["times"])

    def _load(self, name: str, loadable: Mapping[str, Any], limit_s: float) -> None:
        self.open()  # a new child has nothing loaded
        if name not in self._loaded:
            self._ask({"do": "load", "name": name, "loadable": dict(loadable)}, limit_s)
            self._loaded.add(name)

    def unload(self, name: str) -> None:
        """Free the code of a program."""
        if name in self._loaded:
            self._loaded.discard(name)
            with suppress(RunFailedError):  # a child that ended has nothing loaded
                self._ask({"do": "unload", "name": name}, START_SECONDS)

    def inputs(self) -> list[Any]:
        """The arguments that the programs run on, made anew: a reference may write into them."""
        return make_inputs(self._recipe, self._arena, self.device)

    def _ask(self, message: Message, limit_s: float) -> Message:
        child = self.open()
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
        raise RunFailedError(answer["status"], answer["reason"])

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
        """End the child."""
        self._drop()
        if self._spare is not None:
            self._spare.kill()
            self._spare = None
        self._arena.close()


class LocalBench:
    """Runs programs in this process: nothing protects it from them, and limits mean nothing."""

    def __init__(
        self, device: torch.device, inputs: Sequence[Any], *, backend: str = "event"
    ) -> None:
        self._given = [v.detach() if isinstance(v, torch.Tensor) else v for v in inputs]
        self._runner = Runner(device, backend, self._given)

    def run(
        self, name: str, loadable: Mapping[str, Any], limit_s: float, *, returns: bool = True
    ) -> list[torch.Tensor]:
        """As ``ChildBench.run``."""
        with _failures():
            self._runner.load(name, loadable)
            results = self._runner.run(name)
        return results if returns else []

    def times(
        self, name: str, loadable: Mapping[str, Any], count: int, limit_s: float
    ) -> list[float]:
        """As ``ChildBench.times``."""
        with _failures():
            self._runner.load(name, loadable)
            return self._runner.times(name, count)

    def unload(self, name: str) -> None:
        """As ``ChildBench.unload``."""
        self._runner.unload(name)

    def inputs(self) -> list[Any]:
        """As ``ChildBench.inputs``."""
        return copies_of(self._given)

    def close(self) -> None:
        """Free the code of all programs."""
        self._runner.close()


Bench = ChildBench | LocalBench


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        status, _ = status_of(error)
        raise RunFailedError(status, f"{type(error).__name__}: {error}") from error


def status_of(error: Exception) -> tuple[str, bool]:
    """The status that an error while running means, and whether the process must end."""
    text = str(error).lower()
    is_fatal = any(words in text for words in _FATAL)
    if any(words in text for words in _ADDRESS):
        return "illegal_access", is_fatal
    return "error", is_fatal


# -- running in this process -----------------------------------------------------------------------
class Runner:
    """Programs loaded into this process, and the inputs that they run on, on one device.

    Programs never write into ``inputs``: they get copies of what they write.
    """

    def __init__(self, device: torch.device, backend: str, inputs: list[Any]) -> None:
        self.device = device
        self._timer: Timer | None = None
        self._backend = backend
        self._ops: dict[str, _LoadedOp] = {}
        self._inputs = inputs
        # One set of copies for all configs: they are put back before each run.
        self._copies: dict[tuple[int, ...], list[Any]] = {}

    def load(self, name: str, loadable: Mapping[str, Any]) -> None:
        """Register the program that ``loadable`` describes, under ``name``."""
        if name not in self._ops:
            self._ops[name] = _LoadedOp(loadable)

    def run(self, name: str) -> list[torch.Tensor]:
        """What one run gives: the tensors that it returns, then those that it wrote into."""
        op = self._ops[name]
        arguments = op.copies(self._inputs)
        result = op.call(arguments, self.device)
        written = [arguments[n] for n in op.mutated]
        if self.device.type == "cuda":  # its errors belong to this run
            torch.cuda.synchronize(self.device)
        return [*result, *(t for t in written if isinstance(t, torch.Tensor))]

    def times(self, name: str, count: int) -> list[float]:
        """Milliseconds of ``count`` runs; what a run wrote is put back before the next."""
        op = self._ops[name]
        if op.mutated not in self._copies:
            self._copies[op.mutated] = op.copies(self._inputs)
        arguments = self._copies[op.mutated]
        if self._timer is None:
            self._timer = timer_for(self.device, self._backend)

        def restore() -> None:
            for n in op.mutated:
                if isinstance(arguments[n], torch.Tensor):
                    arguments[n].copy_(self._inputs[n])

        before = restore if op.mutated else None
        return self._timer.times(lambda: op.call(arguments, self.device), count, before)

    def unload(self, name: str) -> None:
        """Free the code of a program."""
        op = self._ops.pop(name, None)
        # Two configs may be one program.
        if op is not None and all(o.handle != op.handle for o in self._ops.values()):
            runtime.unload(op.handle)

    def close(self) -> None:
        """Free the code of all programs."""
        for name in list(self._ops):
            self.unload(name)


class _LoadedOp:
    def __init__(self, loadable: Mapping[str, Any]) -> None:
        op = loadable["op"]
        args = [a for a in op["args"] if a["role"] in ("tensor", "scalar")]
        self.mutated = tuple(n for n, a in enumerate(args) if a["mutated"])
        self._takes_device = any(a["role"] == "device" for a in op["args"])
        self.handle = _handle_of(op)
        variant = runtime.add_variant(self.handle, loadable["variant"])
        images: dict[str, runtime.Image] = {}
        for image, fact in loadable["images"].items():
            data = Path(fact["path"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != fact["sha256"]:
                raise ArgumentError(f"{fact['path']} is not what was compiled")
            images[image] = (data, fact["path"])
        runtime.add_entry(self.handle, variant, loadable["entry"], images)
        self._overload = getattr(getattr(torch.ops, op["namespace"]), op["name"]).default

    def call(self, arguments: list[Any], device: torch.device) -> list[torch.Tensor]:
        extra = {"device": device} if self._takes_device else {}
        result = self._overload(*arguments, **extra)
        if result is None:
            return []
        return [result] if isinstance(result, torch.Tensor) else list(result)

    def copies(self, inputs: list[Any]) -> list[Any]:
        """The arguments of a call, those that it writes into copied."""
        return [
            clone(value) if n in self.mutated and isinstance(value, torch.Tensor) else value
            for n, value in enumerate(inputs)
        ]


_handles: dict[str, int] = {}


def _handle_of(op: dict[str, Any]) -> int:
    # An op lives as long as its process, and may be loaded again after it was unloaded.
    name = f"{op['namespace']}::{op['name']}"
    with forks.guard:
        if name not in _handles:
            _handles[name] = runtime.create_op(op)
        return _handles[name]


# -- the measuring child's process -----------------------------------------------------------------
class Server:
    """Answers requests by their ``do``: open, load, run, times, unload.

    An answer has status ok and what was asked for, or another status with ``reason``, and
    ``is_fatal`` where the process can run nothing any more.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._runner: Runner | None = None
        self._actions: dict[str, Callable[[Message], Message | None]] = {
            "open": self._open,
            "load": lambda m: self._ready.load(m["name"], m["loadable"]),
            "run": self._run,
            "times": lambda m: {"times": self._ready.times(m["name"], m["count"])},
            "unload": lambda m: self._ready.unload(m["name"]),
        }

    @property
    def _ready(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("no device was opened")
        return self._runner

    def answer(self, message: Message) -> Message:
        """The answer to one request; no error leaves it."""
        try:
            return {"status": "ok", **(self._actions[message["do"]](message) or {})}
        except Exception as error:  # a program that fails is an answer
            status, is_fatal = status_of(error)
            reason = f"{type(error).__name__}: {error}"
            return {"status": status, "reason": reason, "is_fatal": is_fatal}

    def _open(self, message: Message) -> None:
        device = torch.device(message["device"])
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)  # makes the context, or says why there can be none
        if message["threads"] is not None:
            torch.set_num_threads(message["threads"])
        inputs = make_inputs(message["recipe"], self._arena, device)
        self._runner = Runner(device, message["backend"], inputs)

    def _run(self, message: Message) -> Message:
        results: list[dict[str, Any]] = []
        free = message["at"]
        for tensor in self._ready.run(message["name"]):
            if not message["returns"]:
                continue
            whole = tensor.detach().contiguous()
            dtype = str(tensor.dtype).removeprefix("torch.")
            results.append({"dtype": dtype, "shape": list(tensor.shape), "at": free})
            free = self._arena.put(whole.reshape(-1).view(torch.uint8).cpu(), free)
        return {"results": results}


if __name__ == "__main__":
    serve(Server(Arena(int(sys.argv[1]))).answer)
