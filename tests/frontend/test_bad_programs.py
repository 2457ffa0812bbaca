"""Every broken program raises its error class, with the text of its golden file, at its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frontend import (
    bad_dtypes_and_shapes,
    bad_forms,
    bad_programs,
    bad_signatures,
    bad_threads,
    macros_elsewhere,
)
from tests.frontend.registry import BAD
from tests.kit.goldens import GOLDEN, check
from tileops.errors import ProgramError, TileopsError

MODULES = (
    bad_dtypes_and_shapes, bad_forms, bad_programs, bad_signatures, bad_threads, macros_elsewhere,
)  # fmt: skip
FILES = tuple(Path(str(m.__file__)) for m in MODULES)


def normalised(text: str) -> str:
    """The error's text without the folder and line number of the program's file."""
    for file in FILES:
        text = re.sub(rf"{re.escape(str(file))}:\d+", f"{file.name}:LINE", text)
    return re.sub(r"at line \d+", "at line LINE", text)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_program_raises_its_error(name: str) -> None:
    program = BAD[name]
    with pytest.raises(program.error) as caught:
        program.run()
    error = caught.value
    assert type(error) is program.error or isinstance(error, program.error)
    check("errors", name, f"{type(error).__name__}\n{normalised(str(error))}\n")


@pytest.mark.parametrize("name", [n for n, p in BAD.items() if n != "construct_outside_a_program"])
def test_a_program_error_points_at_the_program(name: str) -> None:
    program = BAD[name]
    with pytest.raises(ProgramError) as caught:
        program.run()
    location = caught.value.location
    assert location is not None
    assert Path(location.file) in FILES
    location = location.outermost  # where it stands in a macro, the place of the call
    source = Path(location.file).read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(source) if line.startswith(f"def {name}("))
    starts = (i for i in range(first + 1, len(source)) if source[i].startswith(("def ", "@")))
    last = next(starts, len(source))
    assert first < location.line <= last


def test_program_errors_are_also_the_python_errors_that_users_expect() -> None:
    for name, program in BAD.items():
        assert issubclass(program.error, TileopsError), name
        if "index" in program.error.__name__.lower():
            assert issubclass(program.error, IndexError)


def test_every_golden_error_belongs_to_a_program() -> None:
    stems = {p.stem for p in (GOLDEN / "errors").glob("*.txt")}
    calls = {s for s in stems if s.startswith("call_")}  # those of calls belong to other tests
    assert stems - calls == set(BAD)
