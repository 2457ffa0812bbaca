"""The command ``python -m tileops env``: versions, devices, compilers, cache, what is missing."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from tileops import cxx, settings
from tileops.cache import catalog
from tileops.cache.directory import here
from tileops.compiler.toolchain import first_line
from tileops.errors import ToolchainError
from tileops.target import Target, host_cpu_level


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``env``."""
    parser = commands.add_parser("env", help="versions, devices, toolchain, cache, what is missing")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.set_defaults(run=show_environment)


def show_environment(options: argparse.Namespace) -> int:
    """Print what this process finds; 0 also where something is missing."""
    facts = gather()
    if options.json:
        print(json.dumps(facts, indent=1))
        return 0
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        lines = value if isinstance(value, list) else [value]
        for number, line in enumerate(lines or ["none"]):
            print(f"{name if number == 0 else '':{width}}  {line}")
    return 0


def gather() -> dict[str, Any]:
    """The facts, by name: plain text or a list of lines."""
    current = settings.current()
    compiler = current.cxx if current.cxx is not None else "g++"
    facts: dict[str, Any] = {
        "tileops": version(),
        "python": f"{platform.python_version()} ({platform.machine()}, {platform.system()})",
        "torch": _version("torch"),
        "triton": _version("triton"),
        "filelock": _version("filelock"),
        "cpu target": f"cpu:{host_cpu_level()}",
        "c++ compiler": compiler_version(),
        "native runtime": "built" if importlib.util.find_spec("tileops._C") else "not built",
        "cuda devices": devices(),
    }
    where = here()
    found = catalog.items(where)
    size = sum(item.bytes for item in found) / 2**20
    root = str(where.private.root) if where.private is not None else "memory only"
    facts["cache"] = f"{root}: {len(found)} entries, {size:.1f} MiB"
    if where.layers:
        facts["cache layers"] = [str(layer.root) for layer in where.layers]
    facts["missing"] = _missing(facts, compiler, where.problem)
    return facts


def version() -> str:
    """The version of this package, whatever name it is distributed under."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def compiler_version() -> str:
    """The C++ compiler and the first line that it says of itself, or why it is not found."""
    try:
        words = cxx.command(Target("cpu", host_cpu_level()))
        return f"{shlex.join(words)}: {first_line(words)}"
    except ToolchainError as error:
        return f"not found: {error}"


def devices() -> list[str]:
    """A line for each CUDA device that torch can use."""
    import torch

    if not torch.cuda.is_available():
        return []
    return [
        f"cuda:{index} {properties.name}, sm_{properties.major}{properties.minor}, "
        f"{properties.multi_processor_count} multiprocessors, "
        f"{properties.total_memory / 2**30:.0f} GiB"
        for index in range(torch.cuda.device_count())
        for properties in (torch.cuda.get_device_properties(index),)
    ]


def _missing(facts: dict[str, Any], compiler: str, problem: str | None) -> list[str]:
    missing = []
    if facts["native runtime"] != "built":
        missing.append("the native runtime: build it with pip install -e . --no-build-isolation")
    if facts["triton"] == "not installed":
        missing.append("triton, to compile for GPUs: pip install 'triton>=3.6,<3.10'")
    if facts["c++ compiler"].startswith("not found"):
        missing.append(f"{compiler}, to compile for the CPU: install g++ 11 or newer")
    elif (version := _number(facts["c++ compiler"].rpartition(" ")[2])) and version < (11,):
        missing.append(f"a newer compiler than {facts['c++ compiler']}: install g++ 11 or newer")
    if (version := _number(facts["triton"])) and not (3, 6) <= version < (3, 10):
        missing.append(f"another triton than {facts['triton']}: pip install 'triton>=3.6,<3.10'")
    if (version := _number(facts["torch"])) and version < (2, 10):
        missing.append(f"a newer torch than {facts['torch']}: pip install 'torch>=2.10'")
    if problem is not None:
        missing.append(f"a cache directory: {problem}")
    for path in settings.current().bundle:
        if not (Path(path) / "bundle.json").is_file():
            missing.append(f"the bundle {path} of TILEOPS_BUNDLE: write it with tileops.bundle")
    return missing


def _number(text: str) -> tuple[int, ...]:
    """Major and minor number of a version; empty for a text that is none."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else ()
