"""Owns the measurement child: a process that loads, runs and times programs, and may die of it.

``python -m tileops.autotuner.child <descriptor of the arena>``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from tileops.autotuner.arena import Arena
from tileops.autotuner.inputs import make_inputs
from tileops.autotuner.pipes import Message, serve
from tileops.autotuner.running import Runner, status_of


class Server:
    """Answers requests by their ``do``: open, inputs, load, run, times, unload.

    An answer has status ok and what was asked for, or another status with ``reason``, and
    ``is_fatal`` where the process can run nothing any more.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._runner: Runner | None = None
        self._actions: dict[str, Callable[[Message], Message | None]] = {
            "open": self._open,
            "inputs": self._make_inputs,
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
            if isinstance(error, torch.OutOfMemoryError):
                status = "out_of_memory"
            reason = f"{type(error).__name__}: {error}"
            return {"status": status, "reason": reason, "is_fatal": is_fatal}

    def _open(self, message: Message) -> None:
        device = torch.device(message["device"])
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)  # makes the context, or says why there can be none
        if message["threads"] is not None:
            torch.set_num_threads(message["threads"])
        self._runner = Runner(device, message["backend"])

    def _make_inputs(self, message: Message) -> None:
        self._ready.set_inputs(make_inputs(message["recipe"], self._arena, self._ready.device))

    def _run(self, message: Message) -> Message:
        results: list[dict[str, Any]] = []
        free = message["at"]
        for tensor in self._ready.run(message["name"]):
            if not message["returns"]:
                continue
            whole = tensor.detach().contiguous()
            results.append(
                {
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "shape": list(tensor.shape),
                    "at": free,
                }
            )
            free = self._arena.put(whole.reshape(-1).view(torch.uint8).cpu(), free)
        return {"results": results}


if __name__ == "__main__":
    serve(Server(Arena(int(sys.argv[1]))).answer)
