"""``tileops/_C.pyi``: it describes what the native module has, no more and no less."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.runtime.conftest import ROOT
from tileops import runtime
from tileops.runtime import binding

STUB = ast.parse((ROOT / "tileops" / "_C.pyi").read_text())
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
# What pybind11 says of a parameter where the stub knows more.
LOOSE = {"object", "dict", "tuple", "type", "collections.abc.Iterable", "collections.abc.Callable", "types.ModuleType"}  # fmt: skip


def native_signature(name: str) -> ast.FunctionDef:
    """The signature of a native function, which pybind11 writes in the first line of its docstring."""
    line = getattr(binding.native(), name).__doc__.splitlines()[0]
    line = line.replace("typing.SupportsInt | typing.SupportsIndex", "int")
    line = line.replace("typing.SupportsInt", "int").replace("typing.SupportsFloat", "float")
    node = ast.parse(f"def {line}: ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def plain(node: ast.expr | None) -> str:
    return (
        re.sub(r"collections\.abc\.|typing\.|tileops\._C\.", "", ast.unparse(node)) if node else ""
    )


def test_both_have_the_same_names() -> None:
    names = {name for name in dir(binding.native()) if not name.startswith("__")}
    assert names == set(FUNCTIONS) | set(CLASSES)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"run_raw"}))  # which takes any keyword
def test_both_have_the_same_signatures(name: str) -> None:
    native, stub = native_signature(name).args, FUNCTIONS[name].args
    assert [a.arg for a in native.args] == [a.arg for a in stub.args]
    assert [a.arg for a in native.kwonlyargs] == [a.arg for a in stub.kwonlyargs]
    assert len(native.defaults) == len(stub.defaults)
    assert [d is None for d in native.kw_defaults] == [d is None for d in stub.kw_defaults]
    for mine, theirs in zip(
        native.args + native.kwonlyargs, stub.args + stub.kwonlyargs, strict=True
    ):
        if mine.annotation is not None and ast.unparse(mine.annotation) not in LOOSE:
            assert plain(mine.annotation).split("[")[0] == plain(theirs.annotation).split("[")[0]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_both_return_the_same(name: str) -> None:
    native, stub = plain(native_signature(name).returns), plain(FUNCTIONS[name].returns)
    if native != "object":
        assert native == stub.split("[")[0] or native == stub


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_classes_have_the_same_members(name: str) -> None:
    members = {n for n in dir(getattr(binding.native(), name)) if not n.startswith("_")}
    assert members == {
        node.name for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)
    }


def test_the_runtime_has_all_of_them() -> None:
    for name in (*FUNCTIONS, *CLASSES):
        assert getattr(runtime, name) is getattr(binding.native(), name)
    with pytest.raises(AttributeError, match="no_such_function"):
        _: Any = runtime.no_such_function  # type: ignore[attr-defined]


def test_the_wheel_has_it() -> None:
    (line,) = re.findall(r"^tileops = .*$", (ROOT / "pyproject.toml").read_text(), re.M)[-1:]
    assert '"*.pyi"' in line
    assert '"py.typed"' in line


def test_mypy_reads_the_stub(tmp_path: Any) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(
        "from tileops import runtime\n"
        "runtime.create_opp({})\n"
        "runtime.add_variant('one', {})\n"
        "text: str = runtime.is_strict()\n"
    )
    files = [
        tmp_path / "use.py",
        *("tileops/runtime/__init__.py", "tileops/runtime/binding.py", "tileops/_C.pyi"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=skip", f"--cache-dir={tmp_path / 'cache'}", *map(str, files)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert re.findall(r"use\.py:(\d+): error: .*\[([a-z-]+)\]", done.stdout) == [
        ("2", "attr-defined"), ("3", "arg-type"), ("4", "assignment"),
    ], done.stdout + done.stderr  # fmt: skip
