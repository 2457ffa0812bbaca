"""Programs that convert one dtype into every other one: elements, tiles and constants."""

from __future__ import annotations

import importlib.util
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from tests.kit import exactly
from tests.kit.exactly import Element
from tests.kit.formats import DTYPES, PACKED
from tileops.dtypes import DType

BLOCK = 256
LITERALS = 16


def targets_of(source: str) -> list[str]:
    return [d for d in DTYPES if d != source]


def inputs_of(source: str, pairs: int, seed: int) -> list[Element]:
    """Elements of ``source`` that are hard for some target."""
    if DType(source).bits <= 8:
        return exactly.all_elements(source)
    rng = random.Random(f"{source} {seed}")
    found: list[Element] = []
    for target in targets_of(source):
        found += exactly.points(source, target, pairs, rng)
    return list({repr(x): x for x in found}.values())


def module_of(text: str, path: Path) -> Any:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program


def program_of(source: str, length: int, folder: Path, *, copies: bool) -> Any:
    """A program with an output for each target: elements cast, or tiles copied."""
    names = targets_of(source)
    name = f"{'copies' if copies else 'casts'}_of_{source}"
    lines = [
        "import tileops",
        "import tileops.language as T",
        f"@tileops.jit(name='{name}')",
        "def program(A):",
        f"    A: T.Tensor(({length},), T.{source})",
        *(f"    B{n} = T.empty(({length},), T.{d})" for n, d in enumerate(names)),
        f"    with T.Kernel({length // BLOCK}, threads=64) as b:",
        f"        a = T.alloc_shared(({BLOCK},), T.{source})",
        f"        T.copy(A[b * {BLOCK}], a)",
        *(_copies(names) if copies else _casts(names)),
        "    return " + ", ".join(f"B{n}" for n in range(len(names))),
        "",
    ]
    return module_of("\n".join(lines), folder / f"{name}.py")


def _casts(names: list[str]) -> list[str]:
    return [
        f"        for i in T.Parallel({BLOCK}):",
        *(f"            B{n}[b * {BLOCK} + i] = T.cast(a[i], T.{d})" for n, d in enumerate(names)),
    ]


def _copies(names: list[str]) -> list[str]:
    return [
        line
        for n, d in enumerate(names)
        for line in (
            f"        c{n} = T.alloc_fragment(({BLOCK},), T.{d})",
            f"        T.copy(a, c{n})",
            f"        T.copy(c{n}, B{n}[b * {BLOCK}])",
        )
    ]


def padded(numbers: list[Element], source: str) -> torch.Tensor:
    return exactly.tensor_of(numbers, source, -(-len(numbers) // BLOCK) * BLOCK)


def faults(source: str, given: torch.Tensor, found: list[torch.Tensor]) -> list[str]:
    """What is not the exactly rounded value, as text; ``found`` as ``program_of`` returns it."""
    numbers = exactly.elements(given, source)
    out = []
    for target, got in zip(targets_of(source), found, strict=True):
        out += differences(f"{source} to {target}", numbers, source, target, got)
    return out


def differences(
    what: str, numbers: list[Element], source: str, target: str, found: torch.Tensor
) -> list[str]:
    """The first element that differs from the definition."""
    for x, y in zip(numbers, exactly.elements(found, target), strict=False):
        expected = exactly.converted(x, source, target)
        if expected != y and not (expected != expected and y != y):
            return [f"{what}: {show(x)} gives {show(y)}, exactly {show(expected)}"]
    return []


def show(x: Element) -> str:
    return f"{float(x)!r} ({x})" if isinstance(x, Fraction) else repr(x)


# -- constants -------------------------------------------------------------------------------------
def literals_of(source: str, target: str, rng: random.Random) -> list[Element]:
    """A few elements of ``source`` to write as literals."""
    some = exactly.points(source, target, 1, rng)
    finite = [x for x in some if isinstance(x, Fraction)]
    # A literal is converted to the source first: an 8-bit float of it is finite.
    special = [
        x for x in some if not isinstance(x, Fraction) and (x != x or DType(source).bits > 8)
    ]
    count = min(LITERALS - len(special), len(finite))
    chosen = [*rng.sample(finite, count), *special]
    return chosen + [chosen[0]] * (LITERALS - len(chosen))


def constants_of(source: str, seed: int, folder: Path) -> tuple[Any, list[list[Element]]]:
    """A program that converts literals, and for each of its outputs the elements converted."""
    rng = random.Random(f"{source} {seed}")
    names = [d for d in targets_of(source) if d not in PACKED]
    numbers = [literals_of(source, d, rng) for d in names]
    lines = [
        "import tileops",
        "import tileops.language as T",
        "nan, inf = float('nan'), float('inf')",
        f"@tileops.jit(name='constants_of_{source}')",
        "def program():",
        *(f"    E{n} = T.empty(({LITERALS},), T.{d})" for n, d in enumerate(names)),
        "    with T.Kernel(1, threads=32):",
    ]
    for n, (target, row) in enumerate(zip(names, numbers, strict=True)):
        for k, x in enumerate(row):
            lines.append(
                f"        E{n}[{k}] = T.cast(T.cast({_literal(x, source)}, T.{source}), T.{target})"
            )
    lines += ["    return " + ", ".join(f"E{n}" for n in range(len(names))), ""]
    return module_of("\n".join(lines), folder / f"constants_of_{source}.py"), numbers


def _literal(x: Element, source: str) -> str:
    if not isinstance(x, Fraction):
        return repr(x)
    return repr(float(x)) if DType(source).is_float else str(int(x))


def faults_of_constants(
    source: str, numbers: list[list[Element]], found: list[torch.Tensor]
) -> list[str]:
    """What is not the exactly rounded value, as text."""
    names = [d for d in targets_of(source) if d not in PACKED]
    out = []
    for target, row, got in zip(names, numbers, found, strict=True):
        what = f"constant {source} to {target}"
        out += differences(what, row, source, target, got)
    return out
