"""What makes two programs one: digests that change with the code and its values, and with nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Prints the parts of the identity of ``prog`` in each file that is named.
READING = """
import importlib.util, json, sys
for number, path in enumerate(sys.argv[1:]):
    spec = importlib.util.spec_from_file_location(f"programs_{number}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    op = module.prog._eager.op
    identity = module.prog._eager.identity(op.spec)
    print(json.dumps({**identity.parts, "all": identity.digest}))
"""

BASE = """
import enum
import functools
from dataclasses import dataclass
from types import SimpleNamespace
import tileops
import tileops.language as T

SCALE = 2.0
TABLE = {"a": (1, 2), "b": [3.0, None]}
NAMES = {"one", "two", "three", "four"}
DTYPE = T.float32
SETTINGS = SimpleNamespace(block=64, names=frozenset(NAMES))


class Kind(enum.Enum):
    FAST = 1
    SLOW = 2


KIND = Kind.FAST


@dataclass(frozen=True)
class Config:
    block: int = 64

    def tiles(self, n):
        return T.ceildiv(n, self.block)


class Limits:
    LOW = -1.0
    UNUSED = 7


CONFIG = Config()


def inner(x):
    return x + 1.0


def helper(x):
    return inner(x) * SCALE


@T.macro
def stored(B, i, value):
    B[i] = value


added = functools.partial(lambda amount, x: x + amount, 3.0)


def make(offset):
    @tileops.jit(name="identified", pass_configs={})
    def prog(A, factor: float = 1.5):
        N = T.dynamic("N")
        A: T.Tensor((N,), DTYPE)
        B = T.empty((N,), DTYPE)
        with T.Kernel(CONFIG.tiles(N)) as bx:
            for i in T.Parallel(SETTINGS.block):
                value = helper(A[bx * 64 + i]) + offset * factor + TABLE["a"][0] + len(NAMES)
                value = T.max(added(value), Limits.LOW + KIND.value)
                stored(B, bx * 64 + i, value)
        return B

    return prog


prog = make(0.5)
"""

# What is replaced, by what, and which parts tell.
CHANGES = {
    "code": ("helper(A[bx * 64 + i]) +", "helper(A[bx * 64 + i]) -", "source"),
    "a name in the code": ("for i in T.Parallel(S", "for i in T.serial(S", "source"),
    "a captured number": ("SCALE = 2.0", "SCALE = 3.0", "captured values"),
    "its sign": ("SCALE = 2.0", "SCALE = -2.0", "captured values"),
    "its type": ("LOW = -1.0", "LOW = -1", "captured values"),
    "a closure": ("make(0.5)", "make(0.25)", "captured values"),
    "a default of a helper": ("def inner(x):", "def inner(x, y=1):", "captured values"),
    "a helper of a helper": ("return x + 1.0", "return x + 2.0", "captured values"),
    "a macro": ("B[i] = value", "B[i] = value + 0.0", "captured values"),
    "an element of a table": ("(1, 2)", "(5, 2)", "captured values"),
    "deep in a table": ("[3.0, None]", "[3.0, False]", "captured values"),
    "a set": ('"three", "four"', '"three"', "captured values"),
    "an enum": ("KIND = Kind.FAST", "KIND = Kind.SLOW", "captured values"),
    "a field of a dataclass": ("CONFIG = Config()", "CONFIG = Config(32)", "captured values"),
    "a method": ("T.ceildiv(n, self.block)", "(n + self.block - 1) // self.block", "captured values"),
    "a namespace": ("SimpleNamespace(block=64", "SimpleNamespace(block=32", "captured values"),
    "a partial": ("x + amount, 3.0", "x + amount, 4.0", "captured values"),
    "a lambda": ("x + amount,", "x - amount,", "captured values"),
    "a default": ("factor: float = 1.5", "factor: float = 2.5", "source"),
    "options": ("pass_configs={}", 'pass_configs={"tl.enable_fast_math": True}', "options of jit"),
    "contiguous": ("pass_configs={}", 'contiguous="copy"', "options of jit"),
    "mutates": ("pass_configs={}", 'mutates=("A",)', "options of jit"),
    "differentiable": ("pass_configs={}", "differentiable=False", "options of jit"),
    "autocast": ("pass_configs={}", 'autocast={"cpu": T.float32}', "options of jit"),
    "compile flags": ("pass_configs={}", 'compile_flags=["-O1"]', "options of jit"),
    "dtype": ("DTYPE = T.float32", "DTYPE = T.float16", "captured values"),
}  # fmt: skip


def read(*files: Path, seed: str = "0") -> list[dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", READING, *map(str, files)],
        capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("identities")
    files = []
    for number, (name, (before, after, _)) in enumerate({"": ("", "", ""), **CHANGES}.items()):
        assert before in BASE, name
        files.append(folder / f"programs_{number}.py")
        files[-1].write_text(BASE.replace(before, after, 1) if before else BASE)
    return dict(zip(["", *CHANGES], read(*files), strict=True))


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_a_program(name: str, changed: dict[str, dict[str, str]]) -> None:
    was, now = changed[""], changed[name]
    assert now["all"] != was["all"]
    assert now[CHANGES[name][2]] != was[CHANGES[name][2]]


def test_every_change_makes_another_program(changed: dict[str, dict[str, str]]) -> None:
    assert len({parts["all"] for parts in changed.values()}) == len(CHANGES) + 1


def test_what_does_not_change_a_program(tmp_path: Path, changed: dict[str, dict[str, str]]) -> None:
    commented = BASE.replace("def helper(x):", "\n\n# A comment.\ndef helper(x):  # another")
    commented = commented.replace("    return prog", "\n    # the program\n\n    return prog")
    commented = commented.replace(
        "B = T.empty((N,), DTYPE)", "B = T.empty(\n            (N,), DTYPE\n        )"
    )
    unused = BASE.replace("SCALE = 2.0", "OTHER = 9\nSCALE = 2.0").replace(
        "UNUSED = 7", "UNUSED = 8"
    )
    texts = {"commented": commented, "unused": unused, "moved/deep/other_name": BASE}
    texts["target"] = BASE.replace("pass_configs={}", 'target="cpu", verbose=False')
    texts["namespace"] = BASE.replace('name="identified"', 'name="acme::identified"')
    files = []
    for name, text in texts.items():
        files.append(tmp_path / f"{name}.py")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        files[-1].write_text(text)
    for seed in ("1", "2", "77"):
        for name, parts in zip(texts, read(*files, seed=seed), strict=True):
            assert parts == changed[""], (seed, name)


def test_values_of_all_sorts(tmp_path: Path) -> None:
    text = textwrap.dedent(
        """
        import functools, logging, threading
        import numpy, torch, tileops, tileops.language as T
        LOG, LOCK = logging.getLogger("itself"), threading.Lock()
        LOG.addHandler(logging.NullHandler())
        ARRAY, TENSOR = numpy.arange(3.0), torch.ones(2)
        DT = T.DTypeVar("dt", T.float32, T.float16)
        class Text(str): pass
        class Slots:
            __slots__ = ("value",)
            def __init__(self): self.value = 4
            def __call__(self): return self.value
        class Cached:
            def __init__(self): self.start = 1
            @functools.cached_property
            def doubled(self): return self.start * 2
        TEXT, SLOTS, CACHED = Text("text"), Slots(), Cached()
        def parts():
            with LOCK: LOG.debug("asked")
            return int(ARRAY[1]) + int(TENSOR[0]) + len(TEXT) + SLOTS() + CACHED.doubled
        LIST = [1]
        LIST.append(LIST)
        class Node:
            def __init__(self): self.me = self
        NODE = Node()
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        @tileops.jit(name="itself")
        def prog(A):
            N = T.dynamic("N")
            A: T.Tensor((N,), DT)
            B = T.empty((N,), DT)
            with T.Kernel(N) as bx:
                B[bx] = A[bx] + (LIST[0] if even(4) and NODE.me is not None else 0) + parts()
            return B
        """
    )
    changes = [
        ("n != 0 and", "n > 0 and"),
        ("arange(3.0)", "arange(3)"),
        ("torch.ones(2)", "torch.ones(2) + 1"),
        ("T.float32, T.float16)", "T.float32, T.bfloat16)"),
        ('Text("text")', 'Text("next")'),
        ("self.value = 4", "self.value = 5"),
        ("self.start * 2", "self.start * 3"),
        ("self.start = 1", "self.start = 2"),
    ]
    texts = [text, text, *(text.replace(*change) for change in changes)]
    files = [tmp_path / f"programs_{number}.py" for number in range(len(texts))]
    for file, content in zip(files, texts, strict=True):
        file.write_text(content)
    one, two, *others = read(*files)
    assert one == two
    assert len({parts["captured values"] for parts in (one, *others)}) == len(changes) + 1
