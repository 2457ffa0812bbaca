"""docs/support.md is what the test-suite says, and what it says is meant."""

from __future__ import annotations

import os

import tileops.language as T
from tests.docs import support


def test_the_page_is_current() -> None:
    if os.environ.get("TILEOPS_UPDATE_GOLDEN") == "1":
        support.PAGE.write_text(support.page())
    assert support.PAGE.read_text() == support.page(), (
        "docs/support.md is not current: run python -m tests.docs.support"
    )


def test_every_construct_has_a_row() -> None:
    text = support.page()
    values = {n for n in T.__all__ if isinstance(getattr(T, n), T.dtype)} | {
        "Var",
        "PrimExpr",
        "dtype",
    }
    assert [n for n in T.__all__ if n not in values and f"`{n}`" not in text] == []


def test_every_construct_runs_on_the_cpu() -> None:
    found = support.coverage()["CPU"]
    missing = [
        first for first, names in support._spellings().items()
        if not found & set(names)
    ]  # fmt: skip
    assert missing == [], missing


def test_a_use_is_seen_and_an_expected_error_is_not() -> None:
    text = (
        "import tileops.language as T\n"
        "def test_a():\n"
        "    def program(A):\n"
        "        with T.Kernel(1):\n"
        "            while A[0] > 0:\n"
        "                T.clear(A)\n"
        "def test_b():\n"
        "    def program(A):\n"
        "        T.gemm(A, A, A)\n"
        "    with pytest.raises(ValueError):\n"
        "        run(program)\n"
    )
    assert support.used_in(text) == {"Kernel", "clear", "`while`"}
