"""Owns docs/support.md: which executors the test-suite runs each construct on, found in its sources.

``python -m tests.docs.support`` rewrites the page. A construct has a mark for an executor if a test
(or a program that a test runs) of that executor's suites uses it; tests that expect an error do not
count. That the tests pass is what a run of the suite shows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import tileops.language as T
from tests.docs.examples import ROOT, examples
from tileops.cli.check_names import Names

PAGE = ROOT / "docs/support.md"
# Modules of programs that every executor's tests walk.
SHARED = ("tests/programs/constructs.py", "tests/programs/traps.py", "tests/checks/programs.py")
# Executor to the files whose tests and programs it runs.
EXECUTORS: dict[str, tuple[str, ...]] = {
    "CPU": ("tests/cpu/*.py", "tests/jit/*.py", "tests/dtypes/*.py", "tests/programs/*.py",
            "examples/*.py", *SHARED),
    "compiles for GPUs": ("tests/compile/*.py", "tests/dtypes/*.py", "examples/*.py", *SHARED),
    "interpreter": (
        "tests/compile/test_[!git]*.py", "tests/compile/test_gemms.py",
        "tests/compile/test_interpreter_programs.py", "tests/compile/programs.py",
        "tests/compile/running.py", "tests/dtypes/*.py", "examples/*.py", *SHARED,
    ),
    "GPU": ("tests/gpu/*.py", "tests/dtypes/*_programs.py", "examples/*.py", *SHARED),
}  # fmt: skip
# Where each construct stands in the page: heading to the modules that define its constructs.
SECTIONS = {
    "Programs and launches": (
        "definitions",
        "annotations",
        "pointers",
        "launch",
        "prim_func",
    ),
    "Tiles and movement": ("allocation", "copies", "buffers"),
    "Tile computation": ("gemm", "reductions", "reducers", "atomics", "dot_products"),
    "Loops and conditions": ("loops", "persistent", "checks"),
    "Scalars": ("arithmetic", "mathematics", "rounding", "value", "vectors"),
    "Hints and threads": ("hints", "lanes"),
}
# Names whose object does not say which module it is from.
_HOMES = {
    "Tensor": "annotations", "SharedBuffer": "annotations", "FragmentBuffer": "annotations",
    "LocalBuffer": "annotations", "Ref": "annotations", "ptr": "pointers",
}  # fmt: skip
FORMS = {
    "`if` in a program": (ast.If,),
    "conditional expression": (ast.IfExp,),
    "`while`": (ast.While,),
    "`break`": (ast.Break,),
    "`continue`": (ast.Continue,),
    "augmented assignment": (ast.AugAssign,),
}


def used_in(text: str) -> set[str]:
    """The constructs and forms that the tests and programs of one file use and expect to work."""
    tree = ast.parse(text)
    names = Names(tree)
    used: set[str] = set()
    # A table of functions: its tests look each name up in the language.
    by_name = "getattr(T, " in text
    for node in _working(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            used.add(names.construct(node) or "")
        elif isinstance(node, ast.FunctionDef) and _launches(node, names):
            inside = {type(inner) for inner in ast.walk(node)}
            used |= {form for form, kinds in FORMS.items() if inside & set(kinds)}
        elif isinstance(node, ast.Constant) and by_name and isinstance(node.value, str):
            used.add(node.value)
    return used & {*T.__all__, *FORMS}


def _working(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a file, without the tests that expect an error."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and "pytest.raises" in ast.unparse(node):
            continue
        yield node
        yield from _working(node)


def _launches(function: ast.FunctionDef, names: Names) -> bool:
    return any(names.called(node) == "Kernel" for node in ast.walk(function))


@lru_cache(maxsize=1)
def coverage() -> dict[str, set[str]]:
    """Executor to the constructs that it runs."""
    found = {
        executor: {
            name
            for pattern in patterns
            for path in sorted(ROOT.glob(pattern))
            for name in used_in(path.read_text())
        }
        for executor, patterns in EXECUTORS.items()
    }
    for example in examples():
        used = used_in(example.text)
        found["CPU"] |= used
        found["compiles for GPUs"] |= used
        found["interpreter"] |= used
    return found


def _home(name: str) -> str:
    if name in _HOMES:
        return _HOMES[name]
    module: str = getattr(getattr(T, name), "__module__", "")
    return module.rpartition(".")[2]


def _spellings() -> dict[str, list[str]]:
    """First name of each construct to all its names; dtypes and classes of values are left out."""
    by_object: dict[int, list[str]] = {}
    for name in T.__all__:
        value = getattr(T, name)
        if not isinstance(value, T.dtype) and name not in ("Var", "PrimExpr", "dtype"):
            by_object.setdefault(id(value), []).append(name)
    groups = [
        sorted(names, key=lambda n: (n.startswith("__"), n.lower() != n, n))
        for names in by_object.values()
    ]
    return {names[0]: names for names in sorted(groups)}


def page() -> str:
    """The whole page."""
    found = coverage()
    head = "| construct | " + " | ".join(EXECUTORS) + " |\n|---|" + ":-:|" * len(EXECUTORS)
    groups = _spellings()
    parts = [
        "# What the tests run where",
        "Made by `python -m tests.docs.support` from the sources of the tests; a test checks that it is current. A mark\n"
        "means that a test, or a program that a test runs, uses the construct on that executor and expects a right result:\n"
        "**CPU**: generated C++. **compiles for GPUs**: the Triton path, compiled for GPUs on any machine. **interpreter**: the\n"
        "same text under Triton's interpreter. **GPU**: on a device, where there is one. No mark means that no test of that\n"
        "kind uses the construct by name; it may work.",
    ]
    for heading, modules in SECTIONS.items():
        rows = [_row(names, found) for first, names in groups.items() if _home(first) in modules]
        parts.append(f"## {heading}\n\n{head}\n" + "\n".join(rows))
    forms = [_row([form], found) for form in FORMS]
    parts.append(f"## Python's forms\n\n{head}\n" + "\n".join(forms))
    return "\n\n".join(parts) + "\n"


def _row(names: list[str], found: dict[str, set[str]]) -> str:
    shown = ", ".join(n if n in FORMS else f"`{n}`" for n in names)
    marks = ("✓" if set(names) & used else "" for used in found.values())
    return f"| {shown} | " + " | ".join(marks) + " |"


if __name__ == "__main__":
    Path(PAGE).write_text(page())
