"""The tree of a function is the one that its file has, however the function is laid out in it."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from tests.programs import printed as programs
from tileops.errors import ProgramSyntaxError
from tileops.frontend import source
from tileops.frontend.rewrite import rewritten
from tileops.frontend.signature import signature_of

TEXT = '''
def plain(a):
    return a


def before_a_comment(a):
    # inside
  # also inside
# also inside
    return a
# after


def with_a_string(a):
    text = """
left of the function
"""
    return text, a


def with_brackets(
    a,
    b=(
1, 2
    ),
):
    return [
a,
  b
]


def with_a_backslash(a):
    return a + \\
1


@deco
@deco2(
    1,
"def x():",
)
def decorated(a):

    @deco
    def inner():
        return a

    return inner
x = 1


def one_line(a): return a
def next_line(a): return a; y = 2


class Holder:
    def method(self, a):
        """Doc.

    less
        """
        if a:
            return self

        return a

    z = 3

    @deco
    def second(self): return self

if True:
	def with_tabs(a):
		if a:
			return a
		return None
	w = 4


def unicode(a):
    return "ä€", a


def last(a):
    if a:
        return 1
    else:
        return 2'''
HEAD = """
def deco(f):
    return f


def deco2(*args):
    return deco
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FunctionType]:
    path = tmp_path_factory.mktemp("source") / "layouts.py"
    path.write_text(HEAD + TEXT)
    spec = importlib.util.spec_from_file_location("layouts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    members = {**vars(module), **vars(module.Holder)}
    return {n: f for n, f in members.items() if inspect.isfunction(f)}


def _in_file(name: str) -> ast.FunctionDef:
    nodes = ast.walk(ast.parse(HEAD + TEXT))
    return next(n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == name)


NAMES = [n.name for n in ast.walk(ast.parse(TEXT)) if isinstance(n, ast.FunctionDef)]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "inner"])
def test_the_tree_is_that_of_the_file(functions: dict[str, FunctionType], name: str) -> None:
    func = functions[name]
    expected = ast.dump(_in_file(name), include_attributes=True)
    assert ast.dump(source.function_tree(func), include_attributes=True) == expected


def test_a_nested_function_has_its_place(functions: dict[str, FunctionType]) -> None:
    inner = functions["decorated"](1)
    expected = ast.dump(_in_file("inner"), include_attributes=True)
    assert ast.dump(source.function_tree(inner), include_attributes=True) == expected


def all_forms(A, B, flag: bool = True, *rest: int, only: int = 2, **more: int):  # type: ignore[no-untyped-def]
    """Has every form that the rewrite replaces."""
    low, high = (0, 1) if (flag and not A) or B else (min(1, 2), max(3, 4))
    low, high = high, low
    x = y = [2 * i for i in range(3)]
    x[low] += -high
    size: int = 3
    assert 0 < low < high, f"{size}"
    for i, j in rest:
        while low < 3 and i:
            low += 1
            if low == j:
                break
            high = high if low else -high
        x[i], (y, *rest) = low, (high, j, j)
    with A as (first, second), B:
        return lambda z: first[z, min(size, 2)] @ second


FUNCTIONS = [all_forms, *(f for f in vars(programs).values() if inspect.isfunction(f))]


@pytest.mark.parametrize("func", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_rewrite_leaves_the_tree_as_it_was(func: FunctionType) -> None:
    before = ast.dump(source.function_tree(func), include_attributes=True)
    rewritten(func)
    assert ast.dump(source.function_tree(func), include_attributes=True) == before


def test_a_lambda_is_refused() -> None:
    with pytest.raises(ProgramSyntaxError, match="must be defined with `def`"):
        source.function_tree(lambda a: a)


def test_a_wrapper_is_refused() -> None:
    def around(f: FunctionType) -> FunctionType:
        @functools.wraps(f)
        def wrapper(*args: object) -> object:
            return f(*args)

        return wrapper

    @around
    def program(a):  # type: ignore[no-untyped-def]
        return a

    with pytest.raises(ProgramSyntaxError, match="`program` is wrapped by another decorator"):
        source.function_tree(program)


@pytest.mark.parametrize("rest", ["*rest", "**rest"])
def test_nameless_parameters_are_refused(tmp_path: Path, rest: str) -> None:
    func = _loaded(tmp_path / "rest.py", f"def f(a, {rest}):\n    T.Kernel(a)\n").f
    with pytest.raises(ProgramSyntaxError, match=f"parameter `{re.escape(rest)}`"):
        signature_of(func)


def test_what_was_not_in_a_file_is_refused() -> None:
    scope: dict[str, FunctionType] = {}
    exec("def made(a):\n    return a\n", scope)
    with pytest.raises(ProgramSyntaxError, match="the source of `made` cannot be found"):
        source.function_tree(scope["made"])


def test_the_order_of_a_constant_set_is_no_change(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(200)]
    path = tmp_path / "sets.py"
    # A set shows the order in which colliding elements came, which that of the file need not be.
    loaded = _loaded(path, f"def f(a):\n    return a in {{{', '.join(map(repr, names))}}}\n").f
    constants = [
        frozenset(sorted(c, key=hash)) if isinstance(c, frozenset) else c
        for c in loaded.__code__.co_consts
    ]
    assert [repr(c) for c in constants] != [repr(c) for c in loaded.__code__.co_consts]
    loaded.__code__ = loaded.__code__.replace(co_consts=tuple(constants))
    assert source.function_tree(loaded).name == "f"


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text("def old(a):\n    return a\n")
    spec = importlib.util.spec_from_file_location("changing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("def other(a):\n    return a, a, a\n")
    with pytest.raises(ProgramSyntaxError, match="changed after it was loaded"):
        source.function_tree(module.old)
    path.write_text("def old(a:\n    return a, a, a, a\n")
    with pytest.raises(ProgramSyntaxError, match="does not parse on its own"):
        source.function_tree(module.old)


def _loaded(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    exec(
        compile(text, path, "exec"), module.__dict__
    )  # no .pyc, which a quick edit would not renew
    return module


ANNOTATED = "def f(a):\n    a: T.{0}\n    T.Kernel(a)\n"


def test_an_edit_of_annotations_alone_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "annotated.py"
    for annotation in ("float32", "float64"):
        func = _loaded(path, ANNOTATED.format(annotation)).f
        node = source.function_tree(func).body[0]
        assert isinstance(node, ast.AnnAssign)
        assert ast.unparse(node.annotation) == f"T.{annotation}"
        assert [p.kind for p in signature_of(func).params] == ["scalar"]
        assert signature_of(func).params[0].annotation == annotation


NESTED = "def f(n):\n    def inner(a):\n        return a + {0}\n    return inner\n"


def test_functions_inside_are_those_that_were_loaded(tmp_path: Path) -> None:
    path = tmp_path / "nested.py"
    func = _loaded(path, NESTED.format(1)).f
    source.function_tree(func)
    path.write_text("# edited\n" + NESTED.format(2))
    assert "a + 1" in ast.unparse(source.function_tree(func(3)))


@pytest.mark.parametrize("edited", [NESTED.format(2), "x = 1\n" + NESTED.format(1), "x = (\n"])
def test_a_function_that_is_parsed_after_an_edit_is_refused(tmp_path: Path, edited: str) -> None:
    path = tmp_path / "late.py"
    func = _loaded(path, NESTED.format(1)).f
    inner = func(3)
    path.write_text(edited)
    with pytest.raises(
        ProgramSyntaxError, match=r"changed after it was loaded|not parse|not be found"
    ):
        source.function_tree(inner)
