"""Inside a class ``__name`` is that class's in programs, macros and parameters, as in Python."""

from __future__ import annotations

import ast

import pytest

import tileops.language as T
from tests.kit.traced import body_of, lines
from tileops.errors import UnsupportedConstructError
from tileops.frontend.source import class_around, mangle


class _Scaled:
    __factor = 3.0

    def __init__(self) -> None:
        self.__count = 4

    @staticmethod
    def __twice(x):
        return x + x

    def attributes(self):
        __shift = 5.0

        def program(A):
            A: T.Tensor((4,), T.float32)
            with T.Kernel(1):
                for i in T.Parallel(self.__count):
                    A[i] = self.__twice(A[i]) * self.__factor + __shift

        return program

    @staticmethod
    def names(__A, __n=2):
        __A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            __sum = T.alloc_var(T.float32, 0.0)
            for __i in T.serial(__n):
                if __A[__i] > 0.0:
                    __sum += __A[__i]
            __A[0] = __sum

    def macros(self):
        @T.macro
        def __fill(x, *, __value):
            if x[0] > 0.0:
                T.fill(x, __value)

        def program(A):
            A: T.Tensor((4,), T.float32)
            with T.Kernel(1):
                __fill(A, __value=self.__factor)

        return program

    def fast(self):
        def program(A):
            A: T.Tensor((4,), T.float32)
            with T.Kernel(1):
                A[0] = T.__exp(A[0])

        return program

    def refused(self):
        def program(A):
            A: T.Tensor((4,), T.float32)
            with T.Kernel(1):
                A[0] = T.__ldg(A[0])

        return program


def test_attributes_and_names_around_the_program() -> None:
    assert body_of(_Scaled().attributes()) == lines("""
        parallel i.2 in [4]:
          %A.0[i.2] = (((%A.0[i.2] + %A.0[i.2]) * 3.0f32) + 5.0f32)
    """)


def test_names_of_the_program() -> None:
    text = body_of(_Scaled.names)
    assert "%_Scaled__sum.2[0] + %_Scaled__A.0[_Scaled__i.3]" in text
    assert "in 0 .. 2" in text
    assert "in 0 .. 3" in body_of(_Scaled.names, _Scaled__n=3)


def test_macros_and_their_parameters() -> None:
    assert "fill %A.0[0 : +4] = 3.0f32" in body_of(_Scaled().macros())


def test_names_of_the_language_that_begin_with_underscores() -> None:
    assert "exp:f32(%A.0[0])" in body_of(_Scaled().fast())
    with pytest.raises(UnsupportedConstructError, match=r"T\.__ldg"):
        body_of(_Scaled().refused())


def _outside():
    class Inside:
        def method(self):
            def function():
                pass

            return function

    return Inside


def test_the_class_is_the_innermost_one_around_the_text() -> None:
    assert class_around(_outside) is None
    assert class_around(_outside().method) == "Inside"
    assert class_around(_outside()().method()) == "Inside"


def test_what_python_changes_and_what_it_leaves() -> None:
    text = """
def __f(__a, b__=__d):
    import __m.n, __m as __k
    __x = self.__y + __z__ + f(__w=1)
    class __C(__B):
        __own = 1
"""
    tree = ast.parse(text)
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    mangle(function, "__K")
    assert (
        ast.unparse(function)
        == """\
def __f(_K__a, b__=_K__d):
    import __m.n, _K__m as _K__k
    _K__x = self._K__y + __z__ + f(_K__w=1)

    class _K__C(_K__B):
        __own = 1"""
    )


def test_a_class_named_by_underscores_alone_changes_nothing() -> None:
    (function,) = ast.parse("def f():\n    return __x").body
    assert isinstance(function, ast.FunctionDef)
    mangle(function, "__")
    assert ast.unparse(function) == "def f():\n    return __x"
