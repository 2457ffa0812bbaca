"""Names: redefinition, equal names of two modules, factories, and names that others hold."""

from __future__ import annotations

import importlib
import linecache
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch

import tileops
from tileops import log
from tileops.errors import ArgumentError, RedefinedOpError

SOURCE = """
import tileops
import tileops.language as T

@tileops.jit
def {name}(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64)) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = X[bx * 64 + i] * {factor}
    return Y
"""
X = torch.ones(3)


@pytest.fixture(autouse=True)
def _warnings_anew() -> None:
    log._warned.clear()


def run_cell(module: ModuleType, text: str, number: int) -> None:
    """Run ``text`` as a notebook runs a cell: in one module, its source kept for tracebacks."""
    file = f"<cell {module.__name__} {number}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), module.__dict__)


def notebook(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    return module


def test_a_cell_that_runs_again_redefines() -> None:
    cell = notebook("names_notebook")
    run_cell(cell, SOURCE.format(name="redefined", factor=2.0), 1)
    first, old_op = cell.redefined, torch.ops.tileops.redefined.default
    assert first(X).tolist() == [2, 2, 2]
    run_cell(cell, SOURCE.format(name="redefined", factor=5.0), 2)
    second = cell.redefined
    assert second(X).tolist() == [5, 5, 5]
    assert torch.ops.tileops.redefined(X).tolist() == [5, 5, 5]
    assert second.op.name() == "tileops::redefined_1"
    with pytest.raises(RedefinedOpError, match=r"tileops::redefined was defined again"):
        old_op(X)


def test_a_program_object_always_runs_its_own_program() -> None:
    cell = notebook("names_own")
    run_cell(cell, SOURCE.format(name="own", factor=2.0), 1)
    first = cell.own
    assert first(X).tolist() == [2, 2, 2]
    run_cell(cell, SOURCE.format(name="own", factor=3.0), 2)
    run_cell(cell, SOURCE.format(name="own", factor=4.0), 3)
    assert first(X).tolist() == [2, 2, 2]
    assert cell.own(X).tolist() == [4, 4, 4]
    assert torch.ops.tileops.own(X).tolist() == [4, 4, 4]
    assert first.op.name().startswith("tileops::own__")


def test_a_compiled_region_follows_a_redefinition() -> None:
    cell = notebook("names_compiled")
    run_cell(cell, SOURCE.format(name="followed", factor=2.0), 1)
    run_cell(cell, "import torch\ndef model(x):\n    return followed(x) + 1\n", 2)
    model = torch.compile(cell.model, fullgraph=True, backend="eager")
    assert model(X).tolist() == [3, 3, 3]
    run_cell(cell, SOURCE.format(name="followed", factor=9.0), 3)
    assert model(X).tolist() == [10, 10, 10]


def test_a_reloaded_module_redefines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "names_reloaded.py"
    file.write_text(SOURCE.format(name="reloaded", factor=2.0))
    module = importlib.import_module("names_reloaded")
    assert module.reloaded(X).tolist() == [2, 2, 2]
    file.write_text(SOURCE.format(name="reloaded", factor=30.0))
    importlib.invalidate_caches()
    importlib.reload(module)
    assert module.reloaded(X).tolist() == [30, 30, 30]
    assert torch.ops.tileops.reloaded(X).tolist() == [30, 30, 30]


def test_equal_names_of_two_modules_live_side_by_side() -> None:
    a, b = notebook("names_a"), notebook("names_b")
    run_cell(a, SOURCE.format(name="shared", factor=2.0), 1)
    with pytest.warns(log.TileopsWarning, match=r"held by names_a\.shared.*name="):
        run_cell(b, SOURCE.format(name="shared", factor=3.0), 1)
    assert a.shared(X).tolist() == [2, 2, 2]
    assert b.shared(X).tolist() == [3, 3, 3]
    assert torch.ops.tileops.shared(X).tolist() == [2, 2, 2]
    assert b.shared.op.name().startswith("tileops::shared__")


FACTORY = """
import tileops
import tileops.language as T

def make(factor):
    @tileops.jit
    def made(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * factor
        return Y
    return made
"""


def test_the_products_of_a_factory_live_side_by_side() -> None:
    cell = notebook("names_factory")
    run_cell(cell, FACTORY, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", log.TileopsWarning)
        programs = [cell.make(float(n)) for n in (2, 3, 4)]
    assert [p(X)[0].item() for p in programs] == [2, 3, 4]
    assert len({p.op.name() for p in programs}) == 3


def test_a_name_that_another_library_holds_is_an_error() -> None:
    library = torch.library.Library("tileops", "FRAGMENT")
    library.define("foreign(Tensor x) -> Tensor")
    cell = notebook("names_foreign")
    with pytest.raises(
        ArgumentError, match=r"names_foreign\.foreign.*tileops::foreign.*registered"
    ):
        run_cell(cell, SOURCE.format(name="foreign", factor=2.0), 1)


def test_a_name_of_the_users_choice() -> None:
    cell = notebook("names_chosen")
    text = SOURCE.format(name="plain", factor=2.0)
    run_cell(cell, text.replace("@tileops.jit", '@tileops.jit(name="my_space::chosen")'), 1)
    assert torch.ops.my_space.chosen(X).tolist() == [2, 2, 2]
    assert cell.plain(X).tolist() == [2, 2, 2]
    assert tileops.JITImpl is type(cell.plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "größe"}, "got 'größe'; pass name= to jit"),
        ({"name": "name"}, "cannot be 'name', which torch.ops.tileops has for itself"),
        ({"name": "__init__"}, "cannot be '__init__'"),
        ({"name": "NoneType"}, "got 'NoneType'"),
        ({"X": "Ä"}, "refused: the name of an argument of an op: expected ASCII .* got 'Ä'"),
    ],
)
def test_names_that_torch_lacks(change: dict[str, str], message: str) -> None:
    name = change.get("name", "refused")
    text = SOURCE.format(name=name, factor=2.0)
    if "X" in change:
        text = text.replace("X", change["X"])
    with pytest.raises(ArgumentError, match=message):
        run_cell(notebook("names_refused"), text, 1)


@pytest.mark.parametrize("name", ["a-b", "a b", "a.b", "a::b::c", "überns::x", "class", "y::", "1"])
def test_chosen_names_that_torch_lacks(name: str) -> None:
    text = SOURCE.format(name="chosen", factor=2.0).replace(".jit", f".jit(name={name!r})")
    with pytest.raises(ArgumentError, match="chosen: the name of an op: expected ASCII letters"):
        run_cell(notebook("names_chosen"), text, 1)


def test_an_edited_annotation_redefines() -> None:
    cell = notebook("names_annotated")
    text = SOURCE.format(name="annotated", factor=2.0).replace("Y[", "X[")
    text = text.replace("    Y = T.empty((N,), T.float32)\n", "").replace("    return Y\n", "")
    run_cell(cell, text, 1)
    run_cell(cell, text.replace("float32", "float64"), 1)
    x = torch.ones(3, dtype=torch.float64)
    cell.annotated(x)
    assert x.tolist() == [2, 2, 2]
