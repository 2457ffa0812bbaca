"""The interpreter's process: takes launches and runs them under Triton's interpreter."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from tileops.child import Message, parents_pipe, receive, send

_FILE = "kernel.py"

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    Pipe = Connection[Any, Any]


def main(pipe: Pipe) -> None:
    """Serve requests until the pipe ends."""
    from tileops.interpreter.repairs import loop, repaired, scalar

    functions: dict[tuple[str, bool], dict[str, Any]] = {}
    while True:
        try:
            request = receive(pipe)
        except (EOFError, OSError):
            return
        rows = iter(request["rows"])
        arguments = [
            row_of(next(rows)).view(getattr(torch, spec["dtype"]))
            if "dtype" in spec
            else scalar(spec["value"], spec["type"])
            for spec in request["arguments"]
        ]
        regions = [row_of(row) for row in rows]
        tables = [
            a for a, s in zip(arguments, request["arguments"], strict=True) if s.get("table", False)
        ]
        moves = [
            (address, len(r), r.data_ptr())
            for address, r in zip(request["regions"], regions, strict=True)
        ]
        for table in tables:
            _move(table, moves)
        try:
            with repaired() if request["repaired"] else nullcontext():
                key = (request["source"], request["repaired"])
                if key not in functions:
                    functions[key] = _namespace(request["source"])
                    if request["repaired"]:
                        functions[key]["range"] = loop
                functions[key]["inspect_values"] = _inspector(pipe, arguments)
                functions[key][request["entry"]][(request["grid"],)](*arguments)
        except Exception as error:
            cause = _cause(error)
            said = f"{type(error).__name__}: {type(cause).__name__}: {cause}"
            _answer(pipe, {"error": said, "assertion": _failed_assertion(cause)}, [])
            continue
        for table in tables:
            _move(table, [(new, size, old) for old, size, new in moves])
        written = [a for a in arguments if isinstance(a, torch.Tensor)]
        _answer(pipe, {"ok": True}, written + regions)


def _inspector(pipe: Pipe, arguments: list[Any]) -> Callable[..., None]:
    """What ``inspect_values`` of ``kernel.py`` is: sends its values and waits for an answer."""
    from tileops.interpreter.repairs import as_torch

    tensors = {a.data_ptr(): a for a in arguments if isinstance(a, torch.Tensor)}

    def inspect_values(*values: object) -> None:
        sent = [as_torch(value, tensors) for value in values]
        specs = [
            {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape)} for t in sent
        ]
        head = {"line": sys._getframe(1).f_lineno, "values": specs}
        _answer(pipe, head, [t.reshape(-1) for t in sent])
        try:
            receive(pipe)
        except (EOFError, OSError):
            raise SystemExit from None

    return inspect_values


def row_of(held: bytearray) -> torch.Tensor:
    """Bytes as a row that can be written."""
    return torch.frombuffer(held, dtype=torch.uint8) if held else torch.empty(0, dtype=torch.uint8)


def _move(table: torch.Tensor, moves: list[tuple[int, int, int]]) -> None:
    """Addresses within an old range become those of the new one."""
    for n, address in enumerate(table.tolist()):
        for old, size, new in moves:
            if old <= address < old + size:
                table[n] = new + address - old


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _failed_assertion(error: BaseException) -> int | None:
    """The line of ``kernel.py`` whose device assertion failed; None for other errors."""
    if not isinstance(error, AssertionError):
        return None
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].name != "_assert":
        return None
    return next((f.lineno for f in reversed(frames) if f.filename == _FILE), None)


def _namespace(source: str) -> dict[str, Any]:
    linecache.cache[_FILE] = (len(source), None, source.splitlines(keepends=True), _FILE)
    namespace: dict[str, Any] = {"__name__": "kernel", "__file__": _FILE}
    exec(compile(source, _FILE, "exec"), namespace)
    return namespace


def _answer(pipe: Pipe, head: Message, tensors: list[torch.Tensor]) -> None:
    send(pipe, {**head, "rows": [tensor.view(torch.uint8).numpy().data for tensor in tensors]})


if __name__ == "__main__":
    sys.stdout = sys.stderr  # what a kernel prints is not what the user's program prints
    main(parents_pipe())
