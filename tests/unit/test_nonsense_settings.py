"""Nonsense in an environment variable: an error that names the variable, or a value that is used."""

from __future__ import annotations

import pytest

from tileops import settings
from tileops.errors import TileopsError
from tileops.jit.targets import requested_target

NONSENSE = [
    "", " ", "nonsense", "-1", "0", "1", "2.5", "1e999", "nan", "inf", "-inf", "9" * 400, "9" * 400 + "GiB",
    "1e400", "²", "٣", "\x01", "\udcff", "1 0", "yes no", "GiB", "10GiBs", "0x10", "/", "~", "~nobody-here", "a:b",
    ",", ",,", "'", '"x', "\\", "%s", "{}", "None", "[]",
]  # fmt: skip
OWN = [v.name for v in settings.VARIABLES if v.name.startswith("TILEOPS_")]


@pytest.mark.parametrize("name", OWN)
def test_nonsense_is_an_error_that_names_the_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in NONSENSE:
        monkeypatch.setenv(name, text)
        said = _refusal()
        assert said is None or name in said, (text, said)


def _refusal() -> str | None:
    try:
        settings.current()
        requested_target(None)
        settings.as_environment()
    except TileopsError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TILEOPS_CACHE_LIMIT", "9" * 400 + "GiB"),
        ("TILEOPS_CACHE_LIMIT", "9" * 5000),
        ("TILEOPS_COMPILE_WORKERS", "9" * 5000),
        ("TILEOPS_TUNE_WORKERS", "²"),
        ("TILEOPS_CACHE_LOCK_SECONDS", "nan"),
        ("TILEOPS_LOG", "cachee"),
        ("TILEOPS_TARGET", "gpu"),
        ("TILEOPS_TARGET", " "),
        ("TILEOPS_STRICT", "perhaps"),
    ],
    ids=lambda text: text[:24],
)
def test_what_cannot_be_meant_is_refused(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    assert name in str(_refusal())
