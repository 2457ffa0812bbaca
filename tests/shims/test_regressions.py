"""tileops.testing.regression calls a file's own functions and prints what they measured."""

from __future__ import annotations

import pytest

from tileops.errors import ArgumentTypeError
from tileops.testing import process_func, regression


def latency(scale: float = 1.0) -> float:
    return 0.25 * scale


def regression_one() -> None:
    process_func(latency)
    process_func(latency, "twice", scale=2.0)


def timing_other() -> None:
    process_func(latency, "other", scale=4)


def test_the_functions_with_the_prefix_are_called_and_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    regression()
    regression(prefixes=["timing_"])
    name = f"{__name__}.latency"
    assert capsys.readouterr().out.splitlines() == [
        f"| {'function':<{len(name)}} | milliseconds |",
        f"|-{'-' * len(name)}-|-------------:|",
        f"| {name} |       0.2500 |",
        f"| {'twice':<{len(name)}} |       0.5000 |",
        "| function | milliseconds |",
        "|----------|-------------:|",
        "| other    |       1.0000 |",
    ]


def test_nothing_is_printed_when_it_is_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    regression(verbose=False)
    assert capsys.readouterr().out == ""


def test_a_measurement_is_a_number() -> None:
    assert process_func(latency, scale=2.0) == 0.5
    with pytest.raises(ArgumentTypeError, match="expected milliseconds from dict"):
        process_func(dict, "empty")
