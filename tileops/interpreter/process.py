"""The process that runs Triton's interpreter, as its user sees it: launches in, results out.

The environment must name the interpreter before Triton is imported, and a process so told cannot
compile for a GPU. So it is a process of its own, started at the first call and kept. Prints and
breakpoints of a program come back and run here, where the terminal and the debugger are.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tileops import forks
from tileops.child import Child, ChildEndedError, Message
from tileops.codegen.kernel_code import LaunchCode
from tileops.errors import ArgumentError, InternalError, ToolchainError
from tileops.interpreter.worker import row_of

# Called with a line of ``kernel.py`` and the values that it shows.
Show = Callable[[int, list[torch.Tensor]], None]


class FailedAssertionError(Exception):
    """A device assertion failed in this line of ``kernel.py``."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


@dataclass(frozen=True)
class Job:
    """One launch. ``tables`` are the numbers of operands that hold addresses.

    ``reachable`` are the tensors that these addresses point to.
    """

    source: str
    launch: LaunchCode
    grid: int
    operands: Sequence[torch.Tensor | float]
    tables: frozenset[int]
    reachable: Sequence[torch.Tensor]
    show: Show

    def tensors(self) -> list[torch.Tensor]:
        """Everything that the launch may write: tensor operands, then what tables point to."""
        return [x for x in self.operands if isinstance(x, torch.Tensor)] + list(self.reachable)

    def request(self, repaired: bool) -> dict[str, Any]:
        """What the process is told; the bytes of ``tensors`` follow."""
        arguments: list[dict[str, Any]] = []
        for number, (param, x) in enumerate(zip(self.launch.params, self.operands, strict=True)):
            if not isinstance(x, torch.Tensor):
                arguments.append({"value": x, "type": param.type})
                continue
            # The kernel's bytes are bytes, whatever torch's dtype of the tensor is.
            stored = "uint8" if param.dtype == "uint8" else str(x.dtype).removeprefix("torch.")
            arguments.append({"dtype": stored, "table": number in self.tables})
        return {
            "source": self.source,
            "entry": self.launch.entry,
            "grid": self.grid,
            "arguments": arguments,
            "regions": [t.data_ptr() for t in self.reachable],
            "repaired": repaired,
        }


class Process:
    """One interpreter process. It takes one job at a time: a message and raw bytes, both ways."""

    def __init__(self) -> None:
        self._child = Child(
            "tileops.interpreter.worker",
            {"TRITON_INTERPRET": "1"},
            drop=("TRITON_",),
            shows_prints=True,
        )
        self._lock = forks.renewed_lock()
        self._is_shown = False

    @property
    def is_alive(self) -> bool:
        """Whether it can take a job of this process."""
        return self._child.is_alive

    def run(self, job: Job, repaired: bool) -> None:
        """Run one launch; the tensors of the job are changed in place."""
        with self._lock:
            if self._is_shown:
                raise ArgumentError("a kernel under the interpreter is stopped at a breakpoint")
            if not self.is_alive:  # another thread's call has ended it
                running().run(job, repaired)
                return
            try:
                answer = self._exchange(job, repaired)
            except BaseException as error:
                # What it has to say is not read to the end: it can answer no other job.
                self._child.kill()
                if isinstance(error, ChildEndedError):
                    raise _ended(error.status) from None
                raise
            if answer.get("assertion") is not None:
                raise FailedAssertionError(answer["assertion"])
            if "error" in answer:
                raise InternalError(
                    f"{job.launch.entry} under Triton's interpreter: {answer['error']}"
                )

    def _exchange(self, job: Job, repaired: bool) -> Message:
        """Send the job, show what it prints, and restore its tensors; the last answer."""
        spans = [_span(tensor) for tensor in job.tensors()]
        rows = [span.numpy().data for span in spans]
        self._child.send({**job.request(repaired), "rows": rows})
        while "line" in (answer := self._child.receive()):
            self._show(job, answer)
        if "error" not in answer:
            for span, row in zip(spans, answer["rows"], strict=True):
                span.copy_(row_of(row))
        return answer

    def _show(self, job: Job, answer: Message) -> None:
        values = [
            row_of(row).view(getattr(torch, spec["dtype"])).reshape(spec["shape"])
            for spec, row in zip(answer["values"], answer["rows"], strict=True)
        ]
        self._is_shown = True
        try:
            job.show(answer["line"], values)
        finally:
            self._is_shown = False
        self._child.send({})

    def stop(self) -> None:
        """End the process, if it is this one's."""
        if self.is_alive:
            self._child.kill()


def _ended(code: int) -> ToolchainError:
    reason = "is Triton installed?" if code > 0 else "did the program leave its tensors?"
    return ToolchainError(f"the interpreter's process ended with code {code}; {reason}")


def _span(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from the tensor's first to its last element, as one row of bytes."""
    length = 0
    if tensor.numel():
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        length = 1 + sum((n - 1) * s for n, s in pairs)
    row = torch.as_strided(tensor.detach(), (length,), (1,))
    return row.view(torch.uint8)


_current: Process | None = None
_start_lock = forks.renewed_lock()


def running() -> Process:
    """The process, started if none runs."""
    global _current
    with _start_lock:
        if _current is None:
            atexit.register(_stop)
        if _current is None or not _current.is_alive:
            _current = Process()
        return _current


def _stop() -> None:
    if _current is not None:
        _current.stop()
