"""A name that the language or a value of it lacks is an error at its line, with the nearest one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

import tileops.language as T
from tests.kit.traced import body_of
from tileops.errors import ProgramAttributeError

CONFIG = SimpleNamespace(block=4)


def of_the_language(A):
    A: T.Tensor((4,), T.float32)
    with T.Kernel(1):
        T.cleer(A)  # here


def of_a_dtype(A):
    A: T.Tensor((4,), T.Float23)  # here
    with T.Kernel(1):
        T.clear(A)


def of_a_buffer(A):
    A: T.Tensor((4,), T.float32)
    with T.Kernel(1):
        T.fill(A, A.shap[0])  # here


def of_a_scalar(A):
    A: T.Tensor((4,), T.float32)
    with T.Kernel(1) as bx:
        A[0] = bx.as_type("float32")  # here


def of_an_enumeration(A):
    A: T.Tensor((16, 16), T.float32)
    with T.Kernel(1):
        c = T.alloc_fragment((16, 16), T.float32)
        T.gemm(A, A, c, policy=T.GemmWarpPolicy.Fullrow)  # here


def in_a_helper(A):
    A: T.Tensor((4,), T.float32)
    with T.Kernel(1):
        A[0] = _half(A[0])  # here


def _half(x):
    return x.astyp("float16")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (of_the_language, "the tile language has no name 'cleer'; did you mean T.clear?"),
        (of_a_dtype, "the tile language has no name 'Float23'; did you mean T.float32?"),
        (of_a_buffer, "A: float32[4] (global) has no attribute 'shap'; did you mean shape?"),
        (of_a_scalar, "a run-time int32 has no attribute 'as_type'; did you mean astype?"),
        (
            of_an_enumeration,
            "T.GemmWarpPolicy has no attribute 'Fullrow'; did you mean FullRow?",
        ),
        (in_a_helper, "a run-time float32 has no attribute 'astyp'; did you mean astype?"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_error_stands_at_the_line_and_says_what_may_be_meant(
    program: Callable[..., None], message: str
) -> None:
    with pytest.raises(ProgramAttributeError) as caught:
        body_of(program)
    assert caught.value.message == message
    assert caught.value.location is not None
    assert caught.value.location.text().endswith("# here")


def test_a_name_like_no_other_has_no_suggestion() -> None:
    with pytest.raises(AttributeError) as caught:
        T.xyzzy
    assert str(caught.value) == "the tile language has no name 'xyzzy'"


def test_whether_a_name_is_there_can_be_asked() -> None:
    def program(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            T.fill(A, 1.0 if hasattr(T, "cleer") or hasattr(A, "shap") else 2.0)

    assert "= 2.0f32" in body_of(program)


def test_attributes_of_other_objects_are_pythons_errors() -> None:
    def program(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            T.fill(A, CONFIG.blok)

    with pytest.raises(AttributeError, match="'blok'") as caught:
        body_of(program)
    assert type(caught.value) is AttributeError
