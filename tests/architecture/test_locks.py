"""Every lock of the package and of the runtime is known to forks, or stands here with the reason why not."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.imports import PACKAGE, ROOT, module_name, package_files

# What makes a lock, or something that holds one, by module. None: every name of the module.
MAKERS: dict[str, frozenset[str] | None] = {
    "threading": frozenset(
        {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "Timer"}
    ),
    "_thread": None,
    "queue": None,
    "multiprocessing": None,
    "asyncio": None,
    "concurrent.futures": None,
    "filelock": None,
    "functools": frozenset({"cached_property"}),
    "fcntl": None,
    # A pipe whose other end a child has is waited for like a lock.
    "subprocess": frozenset(
        {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
    ),
    "os": frozenset({"fork", "forkpty", "pipe", "pipe2", "popen", "system"}),
    "socket": None,
}

# Where a lock is made that forks do not know, and why a child cannot hang in it.
_OF_A_TUNING = (
    "of one tuning: its threads do not exist in the child, and a new tuning makes its own"
)
_OF_THE_KERNEL = "a lock of the kernel on a file: the child opens files of its own"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("tileops.forks", "guard"): "the lock itself",
    ("tileops.forks", "renewed_lock"): "the lock itself",
    ("tileops.forks", "start_process"): "what starts all other programs",
    ("tileops.autotuner.workshop", "Workshop.__init__"): _OF_A_TUNING,
    ("tileops.autotuner.workshop", "Workshop.check"): _OF_A_TUNING,
    ("tileops.autotuner.workshop", "_in_parallel"): _OF_A_TUNING,
    ("tileops.jit.compile_workers", "CompilePool.__init__"): _OF_A_TUNING,
    ("tileops.jit.compile_workers", "CompilePool.compile"): _OF_A_TUNING,
    ("tileops.autotuner.progress", "Bar.__init__"): _OF_A_TUNING,
    ("tileops.autotuner.ranks", "JointTuning.beating"): _OF_A_TUNING,
    ("tileops.child", "Child.__init__"): "a forked child closes its copy: Child.renew",
    ("tileops.child", "parents_pipe"): "a worker's own process, which runs no code of the user",
    ("tileops.child", "serve"): "a worker's own process, which runs no code of the user",
    ("tileops.jit.compiling", "run_all"): "of one call; the pool's module has fork hooks of its own",
    ("tileops.cache.remote.stores", "within"): "of one operation, whose thread does not exist in the child",
    ("tileops.cache.remote.writeback", "WriteBack.__init__"): "a child makes its own: fleet._Current.renew",
    ("tileops.cache.locks", "file_lock"): _OF_THE_KERNEL,
    ("tileops.cache.usage", "_lock"): _OF_THE_KERNEL,
    ("tileops.cache.usage", "_is_abandoned"): _OF_THE_KERNEL,
}  # fmt: skip


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Local names to the module and the name that they came from; of a module, an empty name."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update({(n.asname or n.name): (n.name, "") for n in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.update({(n.asname or n.name): (node.module, n.name) for n in node.names})
    return found


def _makes_lock(module: str, name: str) -> bool:
    for known, names in MAKERS.items():
        if module == known or module.startswith(known + "."):
            return names is None or name in names
    return False


def _used(node: ast.AST, imported: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Module and name of what a node refers to, if it comes from an import."""
    if isinstance(node, ast.Name) and node.id in imported:
        return imported[node.id]
    if isinstance(node, ast.Attribute):
        text = ast.unparse(node.value)
        module, name = imported.get(text, ("", ""))
        return (module, node.attr) if module and not name else None
    return None


def locks_of(source: str) -> set[str]:
    """Where a file makes locks: the function or class body, or the name assigned at top level."""
    tree = ast.parse(source)
    imported = _imported(tree)
    decorators = {
        id(d)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for d in node.decorator_list
    }
    found = set()
    for place, node in _placed(tree, ""):
        made = node.func if isinstance(node, ast.Call) else node if id(node) in decorators else None
        used = None if made is None else _used(made, imported)
        if used is not None and _makes_lock(*used):
            found.add(place)
    return found


def _placed(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        inner = place
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{place}.{child.name}".lstrip(".")
        elif not place and isinstance(child, ast.Assign | ast.AnnAssign):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            inner = ast.unparse(target)
        yield inner or "<module>", child
        yield from _placed(child, inner)


def test_the_reader_finds_locks() -> None:
    source = (
        "import threading as t, threading, queue\nfrom functools import cached_property\n"
        "from threading import Lock as L\n"
        "a = t.Lock()\nb: object = L()\nc = threading.local()\n"
        "class C:\n"
        "    d = queue.Queue()\n"
        "    @cached_property\n    def e(self): ...\n"
        "    def f(self):\n        x: threading.Lock\n        self.x = threading.Condition()\n"
        "    def g(self): return threading.get_ident()\n"
    )
    assert locks_of(source) == {"a", "b", "C", "C.e", "C.f"}


def test_forks_know_every_lock_of_the_package() -> None:
    found = {
        (module_name(path), place)
        for path in package_files()
        for place in locks_of(path.read_text())
    }
    unknown = sorted(found - set(EXCEPTIONS))
    assert not unknown, (
        "use forks.guard or forks.renewed_lock() (see tileops/forks.py), forks.ComputedOnce for "
        f"cached_property, forks.run_process for programs, or say here why a forked child cannot hang in it: {unknown}"
    )
    assert sorted(set(EXCEPTIONS) - found) == []


def test_caches_of_functools_hold_no_lock_while_they_compute() -> None:
    # Python's own form of lru_cache has one; CPython uses the form in C, which has none.
    kind = type(functools.cache(lambda: 0))
    assert not isinstance(vars(kind)["__call__"], types.FunctionType)


# -- what is done under the guard --------------------------------------------------------------
def _guarded(tree: ast.Module) -> Iterator[ast.With]:
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(
            ast.unparse(item.context_expr) == "forks.guard" for item in node.items
        ):
            yield node


def waits_under_guard(source: str) -> list[int]:
    """Lines under ``with forks.guard`` that import, take another lock, warn or open a file."""
    found = []
    for block in _guarded(ast.parse(source)):
        for node in (n for statement in block.body for n in ast.walk(statement)):
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            is_lock = isinstance(node, ast.With) and any(
                ast.unparse(i.context_expr) != "forks.guard" for i in node.items
            )
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            is_slow = called == "open" or called.rpartition(".")[2] in (
                "acquire", "wait", "join", "release", "warn", "warn_once", "emit", "read_bytes", "result",
            )  # fmt: skip
            if is_import or is_lock or is_slow:
                found.append(node.lineno)
    return found


def test_the_reader_finds_what_waits() -> None:
    block = "with forks.guard:\n    {}\n"
    for waits in ("import os", "with self._lock: ...", "log.warn_once(a, b)", "op.release()"):
        assert waits_under_guard(block.format(waits)) == [2], waits
    assert waits_under_guard(block.format("x = {}\nwith other: import os")) == []


@pytest.mark.parametrize("path", package_files(), ids=module_name)
def test_nothing_is_waited_for_under_the_guard(path: Path) -> None:
    assert waits_under_guard(path.read_text()) == []


# -- C++ ---------------------------------------------------------------------------------------
CPP_LOCK = re.compile(
    r"\bstd::(\w*mutex|condition_variable\w*|once_flag|call_once|future|promise|async|packaged_task|"
    r"latch|barrier|\w+_semaphore|thread(?!::id)|jthread)\b"
    r"|\bpthread_(mutex|cond|rwlock|spin|once|barrier|atfork)\w*|\bsem_\w+|\bflock\b"
)
# The one mechanism, which all others use, and the header that names versions of its functions.
CPP_FILES = {"core/forks.h", "core/forks.cpp", "oldest/libc.h"}


def _code(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def test_the_pattern_finds_cpp_locks() -> None:
    for text in (
        "std::shared_mutex m;",
        "std::call_once(f)",
        "pthread_mutex_lock(&m)",
        "std::thread t;",
    ):
        assert CPP_LOCK.search(text), text
    for text in (
        "std::this_thread::yield()",
        "std::thread::id i;",
        "std::lock_guard<Mutex> lock(m)",
    ):
        assert not CPP_LOCK.search(text), text


def test_forks_know_every_lock_of_the_runtime() -> None:
    files = [p for kind in ("*.cpp", "*.h", "*.S", "*.inc") for p in (ROOT / "csrc").rglob(kind)]
    assert len(files) > 50
    found = [
        f"{name}: {match[0]}"
        for path in files
        if (name := str(path.relative_to(ROOT / "csrc"))) not in CPP_FILES
        for match in CPP_LOCK.finditer(_code(path.read_text()))
    ]
    assert found == [], "use Mutex of core/forks.h"


def test_the_runtime_has_no_static_that_a_thread_could_be_making() -> None:
    # The compiler's guard of a local static is a lock too: a child would wait in it for ever.
    # tileops._C has pybind11's own, which run under the interpreter's lock, as os.fork does.
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", str(PACKAGE / "libtileops.so")],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "pthread_mutex_lock" in listing
    assert "__cxa_guard" not in listing, "use Lasting of core/forks.h"
