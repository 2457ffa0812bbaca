"""The command ``python -m tileops analyze``: operations, bytes and the least time of programs.

The file is run, under another name than ``__main__``, and its programs are traced; nothing is
compiled and no kernel runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tileops.dtypes import DType, is_dtype_like
from tileops.errors import ArgumentError, TileopsError
from tileops.ir.program import Program
from tileops.jit import JITImpl
from tileops.jit.targets import default_target, requested_target
from tileops.roofline import Estimate, analyze

_DEFAULT_TARGET = "cuda:sm_90"


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``analyze``."""
    parser = commands.add_parser(
        "analyze", help="operations, bytes, intensity and the least time of a file's programs"
    )
    parser.add_argument("file", type=Path, help="a Python file; it is run")
    parser.add_argument(
        "--with", nargs="+", metavar="NAME=VALUE", default=[], dest="values", action="extend",
        help="sizes and parameters of the programs, such as M=1024 dtype=float16",
    )  # fmt: skip
    parser.add_argument("--program", help="only the program of this name")
    parser.add_argument("--target", default=_DEFAULT_TARGET, help=f"default: {_DEFAULT_TARGET}")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.set_defaults(run=analyze_file)


def analyze_file(options: argparse.Namespace) -> int:
    """Print an estimate for each program; 1 if one of them could not be traced, else 0."""
    values = dict(_parsed(text) for text in options.values)
    target = requested_target(options.target) or default_target()
    programs = _programs(options.file, options.program)
    found: list[dict[str, object]] = []
    failures = 0
    for name, program in programs.items():
        try:
            traced, rest = _traced(program, values)
            found.append(_facts(name, analyze(traced, target, rest)))
        except TileopsError as error:
            failures += 1
            found.append({"program": name, "error": str(error)})
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n\n".join("\n".join(_lines(facts)) for facts in found))
    return int(failures > 0)


def _parsed(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise ArgumentError(f"analyze: expected NAME=VALUE, got {text!r}")
    words = {"True": True, "False": False, "None": None}
    if value in words:
        return name, words[value]
    for convert in (int, float):
        try:
            return name, convert(value)
        except ValueError:
            continue
    return name, DType(value) if is_dtype_like(value) else value


def _programs(file: Path, only: str | None) -> dict[str, JITImpl]:
    sys.path.insert(0, str(file.resolve().parent))
    try:
        scope = runpy.run_path(str(file), run_name="<analyzed>")
    finally:
        sys.path.pop(0)
    found = {name: value for name, value in scope.items() if isinstance(value, JITImpl)}
    if only is not None:
        if only not in found:
            names = ", ".join(found) or "it has none"
            raise ArgumentError(f"{file} has no program named {only!r} ({names})")
        return {only: found[only]}
    if not found:
        raise ArgumentError(f"{file} has no program at its top level")
    return found


def _traced(program: JITImpl, values: Mapping[str, Any]) -> tuple[Program, dict[str, int]]:
    """The program for those of the values that it knows, and its run-time sizes."""
    names = set(inspect.signature(program.func).parameters)
    own = {name: value for name, value in values.items() if name in names}
    sizes = {name: value for name, value in values.items() if type(value) is int}
    if program.mode == "lazy":
        try:
            inspect.signature(program.func).bind(**own)
        except TypeError as error:
            raise ArgumentError(f"{error}; give it by --with NAME=VALUE") from None
        return program.get_tir(**own), sizes
    definition = program.definition
    given = {name: value for name, value in own.items() if name not in definition.inputs}
    symbolic = definition.trace(definition.static_values(given), None)
    known = {s.var.name for s in symbolic.sizes} | {v.name for v in symbolic.dtype_vars}
    own |= {name: value for name, value in values.items() if name in known}
    return program.specialised((), own).program, sizes


def _facts(name: str, estimate: Estimate) -> dict[str, object]:
    work = estimate.work
    return {
        "program": name,
        "machine": estimate.machine.name if estimate.machine else None,
        **dataclasses.asdict(work),
        "flops": work.flops,
        "intensity": estimate.intensity,
        "seconds": estimate.seconds,
        "compute_seconds": estimate.compute_seconds,
        "memory_seconds": estimate.memory_seconds,
        "traffic_seconds": estimate.traffic_seconds,
    }


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield str(facts["program"])
    if "error" in facts:
        yield f"  {facts['error']}"
        return
    for kind in ("products", "elementwise"):
        for dtype, count in facts[kind].items():
            yield f"  {kind} in {dtype}: {count:.4g} operations"
    yield f"  tensors: {facts['tensor_bytes']:.4g} bytes"
    yield f"  blocks read {facts['read_bytes']:.4g} and write {facts['written_bytes']:.4g} bytes"
    yield f"  intensity: {facts['intensity']:.4g} operations a byte"
    if facts["seconds"] is None:
        yield "  the peaks of this target are not known: no times"
    else:
        is_compute = facts["compute_seconds"] >= facts["memory_seconds"]
        bound = "arithmetic" if is_compute else "memory"
        yield f"  at least {facts['seconds'] * 1e6:.4g} us on {facts['machine']}, bound by {bound}"
        yield f"  (arithmetic {facts['compute_seconds'] * 1e6:.4g} us, each tensor once " + (
            f"{facts['memory_seconds'] * 1e6:.4g} us, all that blocks ask for "
            f"{facts['traffic_seconds'] * 1e6:.4g} us)"
        )
    for note in facts["notes"]:
        yield f"  note: {note}"
