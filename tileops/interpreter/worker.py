"""The interpreter's process: reads launches from stdin and runs them under Triton's interpreter."""

from __future__ import annotations

import json
import linecache
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import IO, Any

import torch

_FILE = "kernel.py"


def main(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    """Serve requests until the input ends."""
    from tileops.interpreter.repairs import loop, repaired, scalar

    functions: dict[tuple[str, bool], dict[str, Any]] = {}
    while line := stdin.readline():
        request = json.loads(line)
        arguments = [
            read_bytes(stdin, spec["bytes"]).view(getattr(torch, spec["dtype"]))
            if "bytes" in spec
            else scalar(spec["value"], spec["type"])
            for spec in request["arguments"]
        ]
        regions = [read_bytes(stdin, spec["bytes"]) for spec in request["regions"]]
        tables = [
            a for a, s in zip(arguments, request["arguments"], strict=True) if s.get("table", False)
        ]
        moves = [
            (spec["address"], spec["bytes"], r.data_ptr())
            for spec, r in zip(request["regions"], regions, strict=True)
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
                functions[key]["inspect_values"] = _inspector(stdin, stdout, arguments)
                functions[key][request["entry"]][(request["grid"],)](*arguments)
        except Exception as error:
            cause = _cause(error)
            said = f"{type(error).__name__}: {type(cause).__name__}: {cause}"
            _answer(stdout, {"error": said, "assertion": _failed_assertion(cause)}, [])
            continue
        for table in tables:
            _move(table, [(new, size, old) for old, size, new in moves])
        written = [a for a in arguments if isinstance(a, torch.Tensor)]
        _answer(stdout, {"ok": True}, written + regions)


def _inspector(stdin: IO[bytes], stdout: IO[bytes], arguments: list[Any]) -> Callable[..., None]:
    """What ``inspect_values`` of ``kernel.py`` is: sends its values and waits for an answer."""
    from tileops.interpreter.repairs import as_torch

    tensors = {a.data_ptr(): a for a in arguments if isinstance(a, torch.Tensor)}

    def inspect_values(*values: object) -> None:
        sent = [as_torch(value, tensors) for value in values]
        specs = [
            {
                "dtype": str(t.dtype).removeprefix("torch."),
                "shape": list(t.shape),
                "bytes": t.numel() * t.element_size(),
            }
            for t in sent
        ]
        head = {"line": sys._getframe(1).f_lineno, "values": specs}
        _answer(stdout, head, [t.reshape(-1) for t in sent])
        if not stdin.readline():
            raise SystemExit

    return inspect_values


def read_bytes(pipe: IO[bytes], size: int) -> torch.Tensor:
    """The next ``size`` bytes, as a row."""
    raw = bytearray(pipe.read(size))
    return torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)


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


def _answer(stdout: IO[bytes], head: dict[str, Any], tensors: list[torch.Tensor]) -> None:
    stdout.write(json.dumps(head).encode() + b"\n")
    for tensor in tensors:
        stdout.write(tensor.view(torch.uint8).numpy().tobytes())
    stdout.flush()


if __name__ == "__main__":
    # What a kernel prints must not mix with the answers.
    _out, sys.stdout = sys.stdout, sys.stderr
    main(sys.stdin.buffer, _out.buffer)
