"""The layers: who may import whom, lazily or not, and that nobody imports in a circle."""

from __future__ import annotations

import pytest

from tests.architecture.imports import Import, all_imports, module_name, package_files

L0 = frozenset(
    {
        "child",
        "cxx",
        "errors",
        "forks",
        "settings",
        "option",
        "dtypes",
        "target",
        "location",
        "counters",
        "log",
        "metrics",
        "alias",
        "pass_configs",
        "math",
        "devices",
        "optional_torch",
    }
)

# Package to the packages that it may import. A package may always import itself; L0 is for all.
ALLOWED: dict[str, frozenset[str]] = {
    "ir": frozenset(),
    "foreign": frozenset({"ir"}),
    "language": frozenset({"ir", "foreign"}),
    "frontend": frozenset({"ir", "language"}),
    "passes": frozenset({"ir"}),
    "codegen": frozenset({"ir", "passes"}),
    "compiler": frozenset({"codegen.kernel_code", "ir", "foreign"}),
    "cache": frozenset(),
    "runtime": frozenset({"_C"}),
    "profiler": frozenset({"runtime"}),
    "op": frozenset({"ir", "runtime"}),
    "interpreter": frozenset({"codegen.kernel_code", "ir", "op", "passes"}),
    "jit": frozenset(
        {
            "ir", "language", "frontend", "passes", "codegen", "compiler", "cache", "runtime",
            "profiler", "op", "interpreter", "foreign",
        }
    ),
    "ops": frozenset({"jit", "language"}),
    "packaging": frozenset({"jit"}),
    "patching": frozenset({"ops"}),
    "autotuner": frozenset({"runtime", "profiler"}),
    "layout": frozenset({"language"}),
    "transform": frozenset({"jit"}),
    "roofline": frozenset({"ir"}),
    "dialect": frozenset({"arch", "autotuner", "cache", "ir", "jit", "language", "layout", "profiler", "roofline"}),
    "arch": frozenset({"roofline"}),
    "cli": frozenset(
        {
            "jit", "cache", "runtime", "profiler", "compiler", "op", "autotuner", "codegen",
            "frontend", "ir", "language", "packaging", "roofline",
        }
    ),
    "testing": frozenset(
        {
            "jit", "language", "ir", "codegen", "compiler", "runtime", "frontend", "profiler",
            "cache", "op", "passes", "interpreter",
        }
    ),
}  # fmt: skip

# Modules that stand apart from their package, and what more they may import.
EXTRA: dict[str, frozenset[str]] = {
    # The decorator that joins the language and the front end, which traces at the definition.
    "tileops.language.definitions": frozenset({"frontend"}),
    # The names of other systems' caches, as thin facades over jit.
    "tileops.cache.kernel_cache": frozenset({"jit"}),
    # The tuner of programs: what is asked, its inputs, the session, and what users call.
    "tileops.autotuner.decorator": frozenset({"jit"}),
    "tileops.autotuner.param": frozenset({"jit", "ir"}),
    "tileops.autotuner.benches": frozenset({"jit"}),
    "tileops.autotuner.inputs": frozenset({"jit", "op", "ir"}),
    "tileops.autotuner.tuner": frozenset({"jit", "cache", "op", "ir"}),
    "tileops.autotuner.session": frozenset({"jit", "op"}),
    "tileops.autotuner.measuring": frozenset({"jit"}),
    "tileops.autotuner.spaces": frozenset({"ir"}),
    "tileops.autotuner.workshop": frozenset({"jit", "cache"}),
    # The records of tunings are in the cache's folders, under its locks.
    "tileops.autotuner.database": frozenset({"cache"}),
    # The names that a user's terminal calls.
    "tileops.__main__": frozenset({"cli"}),
}

# The package's own __init__ re-exports for users and may import every layer but the compiler.
ROOT_MODULES = frozenset({"tileops", "tileops.__main__", "tileops.__init__"})


def _inside(name: str) -> str:
    return name.removeprefix("tileops").removeprefix(".")


def _is_allowed(found: Import) -> bool:
    source, target = _inside(found.module), _inside(found.target)
    if found.typing_only or not found.target.startswith("tileops") or source == "":
        return True
    package, target_package = source.split(".")[0], target.split(".")[0]
    if package == target_package or target_package in L0:
        return True
    if found.module in EXTRA and target_package in EXTRA[found.module]:
        return True
    if package in L0:
        return False
    return any(
        target == allowed or target.startswith(f"{allowed}.")
        for allowed in ALLOWED.get(package, frozenset())
    )


def test_every_import_follows_the_arrows() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.target}"
        for found in all_imports()
        if not _is_allowed(found)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_itself_sees_a_wrong_arrow() -> None:
    assert not _is_allowed(Import("tileops.ir.expr", "tileops.jit.kernel", 1, True, False))
    assert not _is_allowed(Import("tileops.errors", "tileops.ir", 1, False, False))
    assert not _is_allowed(Import("tileops.compiler.gxx", "tileops.codegen.cpu", 1, True, False))
    assert not _is_allowed(Import("tileops.cache.store", "tileops.jit", 1, True, False))
    assert _is_allowed(
        Import("tileops.compiler.gxx", "tileops.codegen.kernel_code", 1, True, False)
    )


def test_every_package_has_a_layer() -> None:
    packages = {
        module_name(path).split(".")[1] for path in package_files() if path.parent.name != "tileops"
    }
    assert packages <= set(ALLOWED), packages - set(ALLOWED)


def test_nobody_imports_testing() -> None:
    wrong = [
        found
        for found in all_imports()
        if found.target.startswith("tileops.testing")
        and not found.module.startswith("tileops.testing")
    ]
    assert not wrong, wrong


def test_only_the_compiler_and_the_interpreter_import_triton() -> None:
    wrong = [
        f"{found.module}:{found.line}"
        for found in all_imports()
        if found.target.split(".")[0] == "triton"
        and not found.module.startswith(("tileops.compiler", "tileops.interpreter"))
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_imports_pickle_to_read() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.target}"
        for found in all_imports()
        if found.target.split(".")[0] in ("pickle", "cloudpickle", "dill", "marshal", "shelve")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("lazy", [False, True], ids=["at_import", "lazy_too"])
def test_no_cycles(lazy: bool) -> None:
    graph: dict[str, set[str]] = {module_name(path): set() for path in package_files()}
    for found in all_imports():
        counted = not found.typing_only and (lazy or not found.lazy)
        if counted and found.target in graph and found.target != found.module:
            graph[found.module].add(found.target)
    assert not (cycle := _cycle(graph)), " -> ".join(cycle)


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> list[str]:
        state[node] = 1
        path.append(node)
        for after in sorted(graph[node]):
            if state.get(after) == 1:
                return [*path[path.index(after) :], after]
            if after not in state and (found := visit(after)):
                return found
        path.pop()
        state[node] = 2
        return []

    for node in sorted(graph):
        if node not in state and (found := visit(node)):
            return found
    return []
