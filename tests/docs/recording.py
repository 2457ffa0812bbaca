"""Records which constructs of the language each passed test ran on which executor.

Active where TILEOPS_TEST_RECORD names a JSON file. A construct is used where a program's trace
reads its name from ``tileops.language``; it ran where the executor got that trace's program and
gave no error. Each worker of pytest-xdist writes a file of its own.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tileops
import tileops.language as T
from tests.docs.support import FORMS
from tileops import compiler
from tileops.cli.check_forms import Names
from tileops.codegen import cpu, gpu, triton
from tileops.ir.builder import active_builder
from tileops.ir.program import Program
from tileops.jit import compiling
from tileops.language.tracer import Tracer
from tileops.testing import interpreter

# Names that are read where a program is defined and not where it is traced.
DEFINITIONS = {
    "prim_func", "macro", "dynamic", "symbolic", "Tensor", "StridedTensor", "SharedBuffer",
    "FragmentBuffer", "LocalBuffer", "Ref", "ptr", "GemmWarpPolicy", "DTypeVar",
}  # fmt: skip
_LOGIC = (ast.BoolOp, ast.Not)
# In the order of FORMS: does a node of a program make this form?
_IS: tuple[Callable[[ast.AST], bool], ...] = (
    lambda n: isinstance(n, ast.If),
    lambda n: isinstance(n, ast.IfExp),
    lambda n: isinstance(n, ast.While),
    lambda n: isinstance(n, ast.Break),
    lambda n: isinstance(n, ast.Continue),
    lambda n: isinstance(n, ast.AugAssign),
    lambda n: isinstance(n, ast.Assign) and len(n.targets) > 1,
    lambda n: isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Tuple),
    lambda n: isinstance(n, _LOGIC),
    lambda n: isinstance(n, ast.Compare) and len(n.ops) > 1,
    lambda n: isinstance(n, ast.For) and ast.unparse(n.iter).startswith("range("),
    lambda n: isinstance(n, ast.Slice) and n.lower is not None,
    lambda n: isinstance(n, ast.Assert),
    lambda n: isinstance(n, ast.Constant) and n.value is ...,
)
_PACKAGE = str(Path(tileops.__file__).parent)


class Recorder:
    """The plugin: hooks the language's names, the tracer and each executor's one entry."""

    def __init__(self, path: Path) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        self._path = path.with_suffix(f".{worker}.json") if worker else path
        self._reads: weakref.WeakKeyDictionary[Tracer, set[str]] = weakref.WeakKeyDictionary()
        # Passes replace a program and keep its buffers; what is kept here cannot lend its id.
        self._programs: dict[int, tuple[Program, set[str]]] = {}
        self._codes: dict[int, tuple[Any, Program]] = {}
        self._ran: set[tuple[str, str]] = set()
        self._marks: dict[str, set[str]] = defaultdict(set)
        self._on_gpu = False
        self._hook()

    # -- tests ---------------------------------------------------------------------------------
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._ran.clear()
        self._on_gpu = item.path.parent.name == "gpu"
        yield

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for construct, executor in self._ran:
                self._marks[construct].add(executor)

    def pytest_sessionfinish(self) -> None:
        found = {name: sorted(marks) for name, marks in sorted(self._marks.items())}
        self._path.write_text(json.dumps(found, indent=1) + "\n")

    # -- hooks ---------------------------------------------------------------------------------
    def _hook(self) -> None:
        reads, note = self._reads, self._note

        class Language(ModuleType):
            def __getattribute__(self, name: str) -> Any:
                tracer = active_builder()
                if isinstance(tracer, Tracer):
                    caller = sys._getframe(1).f_code.co_filename
                    if not caller.startswith(_PACKAGE):
                        reads.setdefault(tracer, set()).add(name)
                return super().__getattribute__(name)

        T.__class__ = Language
        _after(Tracer, "finish", lambda program, tracer, *_: self._traced(tracer, program))
        for generate in (triton, cpu, gpu):
            _after(generate, "generate", self._generated)
        _after(compiler, "compile_kernel", self._compiled)
        _after(interpreter, "interpret", lambda _, code, program, *__: note(program, "interpreter"))
        _after(compiling, "obtain", self._obtained)

    def _traced(self, tracer: Tracer, program: Program) -> None:
        names = self._reads.get(tracer, set()) & set(T.__all__)
        for launch in program.launches[:1]:
            if launch.loc is not None:
                names = names | _written(launch.loc.file, launch.loc.line)
        if len(program.launches) > 1:
            names = names | {FORMS[-1]}
        for number in _identities(program):
            self._programs[number] = (program, names)

    def _generated(self, code: Any, program: Program, *_: Any) -> None:
        self._codes[id(code)] = (code, program)
        if code.language == "cpp":
            self._note(program, "cpu")

    def _compiled(self, _: Any, code: Any, *__: Any) -> None:
        if id(code) in self._codes and code.language == "triton":
            self._note(self._codes[id(code)][1], "compile")

    def _obtained(self, _: Any, request: compiling.Request) -> None:
        if request.target.kind == "cpu":
            self._note(request.program, "cpu")
        elif request.target.kind == "cuda" and self._on_gpu:
            self._note(request.program, "gpu")

    def _note(self, program: Program, executor: str) -> None:
        for number in _identities(program):
            if number in self._programs:
                self._ran |= {(name, executor) for name in self._programs[number][1]}
                return


def _identities(program: Program) -> list[int]:
    return [id(p.buffer) for p in program.tensors()]


def _after(owner: Any, name: str, then: Callable[..., None]) -> None:
    """Call ``then(result, *args)`` after each call of a function, under all names it was imported as."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        then(result, *args)
        return result

    setattr(owner, name, wrapper)
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and vars(module).get(name) is original:
            setattr(module, name, wrapper)


@functools.cache
def _written(file: str, line: int) -> frozenset[str]:
    """Forms and definitions of the program whose launch stands at a line, from its source."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError):
        return frozenset()
    around = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]  # fmt: skip
    if not around:
        return frozenset()
    nodes = list(ast.walk(around[-1]))
    forms = {form for form, is_form in zip(FORMS, _IS, strict=False) if any(map(is_form, nodes))}
    loaded = {node.id for node in ast.walk(around[0]) if isinstance(node, ast.Name)}
    outside = [node for node in tree.body if _defines(node) & loaded]
    names = Names(tree)
    used = {
        names.construct(node)
        for top in (around[0], *outside)
        for node in ast.walk(top)
        if isinstance(node, (ast.Attribute, ast.Name))
    }
    return frozenset(forms | {name for name in used if name in DEFINITIONS})


def _defines(node: ast.stmt) -> set[str]:
    """The names that a statement of a module binds, where it is no program of its own."""
    if isinstance(node, ast.FunctionDef):
        is_macro = any("macro" in ast.unparse(d) for d in node.decorator_list)
        return {node.name} if is_macro else set()
    if isinstance(node, ast.Assign):
        return {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return set()
