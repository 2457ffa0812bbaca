"""Each failure of a foreign kernel is an error whose text is kept: op, argument, expected, found."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.foreign.failures import FAILURES, PATCHED, fail_encoding, files
from tests.foreign.test_device_code import has_nvrtc
from tests.kit import goldens
from tileops.errors import TileopsError

KIND = "foreign_errors"


def normalised(text: str) -> str:
    """The text without folders, lines of Python files, and what versions of tools say otherwise."""
    for file in files():
        text = re.sub(rf"{re.escape(str(file))}:\d+", f"{file.name}:LINE", text)
    text = re.sub(r"/tmp/\S*/|ptxas (foreign\.ptx, )?", "", text)
    # The release of PTX that an assembler takes, and the number of a diagnosis.
    text = re.sub(r"(error|warning) ?#\d+(-D)?", r"\1", text)
    return re.sub(r"sm_90a?\b", "sm_90", text)


def told(error: TileopsError) -> str:
    return f"{type(error).__name__}\n{normalised(str(error))}\n"


@pytest.mark.parametrize("name", FAILURES)
def test_the_error_of_a_failure(fake: Any, name: str) -> None:
    failure = FAILURES[name]
    if failure.needs_nvrtc and not has_nvrtc():
        pytest.skip("NVRTC is not installed")
    fail_encoding(fake, name)
    with pytest.raises(TileopsError) as caught:
        failure.run(name)
    goldens.check(KIND, name, told(caught.value))


@pytest.mark.parametrize("name", PATCHED)
def test_the_error_of_a_change(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(TileopsError) as caught:
        PATCHED[name](monkeypatch)
    goldens.check(KIND, name, told(caught.value))


def test_every_golden_error_belongs_to_a_failure() -> None:
    assert {p.stem for p in (goldens.GOLDEN / KIND).glob("*.txt")} == {*FAILURES, *PATCHED}


@pytest.mark.parametrize("name", [*FAILURES, *PATCHED])
def test_an_error_names_its_op(name: str) -> None:
    text = (goldens.GOLDEN / KIND / f"{name}.txt").read_text()
    assert f"failing_{name}" in text or f"in the macro `{name}`" in text
