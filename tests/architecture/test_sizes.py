"""Sizes and names: files, functions, complexity, depth of folders, modules named for nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.imports import PACKAGE, ROOT, package_files

FILE_LINES = 500
FUNCTION_LINES = 60
COMPLEXITY = 12
FORBIDDEN_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "base"})


def _sources() -> list[Path]:
    own = [
        p for folder in ("tests", "examples", "benchmarks") for p in (ROOT / folder).rglob("*.py")
    ]
    native = [
        p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".h", ".hpp", ".cpp", ".cc", ".c")
    ]
    return [*package_files(), *own, *native]


def test_no_file_is_too_long() -> None:
    lengths = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in _sources()}
    wrong = {str(path): lines for path, lines in lengths.items() if lines > FILE_LINES}
    assert not wrong, wrong


def test_no_function_is_too_long_or_too_branched() -> None:
    wrong = []
    for path in package_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            branches = complexity(node)
            if lines > FUNCTION_LINES or branches > COMPLEXITY:
                where = path.relative_to(ROOT)
                wrong.append(f"{where}:{node.lineno} {node.name}: {lines} lines, {branches}")
    assert not wrong, "\n".join(wrong)


def complexity(node: ast.AST) -> int:
    """McCabe's number, counted as ruff's C901 does; nested functions belong to the outer one."""
    total = 1
    for child in ast.walk(node):
        if isinstance(child, ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler):
            total += 1
        elif isinstance(child, ast.Match):
            last = child.cases[-1]
            has_default = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
            total += len(child.cases) - (1 if has_default and last.guard is None else 0)
    return total


def test_the_measure_counts() -> None:
    tree = ast.parse("def f(x):\n if x:\n  pass\n for y in x:\n  pass\n while x:\n  pass\n")
    assert complexity(tree.body[0]) == 4


def test_no_module_is_named_for_nothing() -> None:
    wrong = [
        p.relative_to(ROOT)
        for p in _sources()
        if p.stem in FORBIDDEN_NAMES or p.parent.name in FORBIDDEN_NAMES
    ]
    assert not wrong, wrong


def test_folders_are_at_most_two_levels_deep() -> None:
    wrong = [p for p in package_files() if len(p.relative_to(PACKAGE).parts) > 3]
    assert not wrong, wrong


def test_every_module_says_what_it_owns() -> None:
    wrong = [
        str(p.relative_to(ROOT))
        for p in package_files()
        if not (ast.get_docstring(ast.parse(p.read_text())) or "").strip()
    ]
    assert not wrong, wrong


def test_only_settings_reads_the_environment() -> None:
    pattern = re.compile(r"\bos\.(environ|getenv|putenv)|from os import .*environ")
    wrong = [
        f"{p.relative_to(ROOT)}:{number}"
        for p in package_files()
        if p.name != "settings.py"
        for number, line in enumerate(p.read_text().splitlines(), 1)
        if pattern.search(line) and not line.lstrip().startswith("#")
    ]
    assert not wrong, wrong


def test_no_except_pass_and_no_leftover_marks() -> None:
    mark = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    wrong = []
    for path in package_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and all(
                isinstance(statement, ast.Pass) for statement in node.body
            ):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} except: pass")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if mark.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number} {line.strip()}")
    assert not wrong, "\n".join(wrong)
