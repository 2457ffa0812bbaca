"""The picture of ``python -m tileops tune show``: what it shows, with matplotlib and without."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
from tileops.autotuner.database import Row
from tileops.cli import tune_picture
from tileops.cli.main import main
from tileops.cli.stored_tuning import StoredTuning
from tileops.cli.tune_picture import draw

pytestmark = pytest.mark.usefixtures("tuning_cache")

TIMES = {8: 3.0, 16: 2.0, 32: 1.0}


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The figures that are drawn, kept after they were written."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    found: list[Any] = []
    close = pyplot.close
    monkeypatch.setattr(pyplot, "close", found.append)
    yield found
    close("all")


def stored(key: dict[str, Any], rows: Any) -> StoredTuning:
    return StoredTuning("some_op", "ab" * 32, key, None, rows)


def drawn(latencies: dict[int, float], failed: tuple[str, ...] = (), **sizes: int) -> StoredTuning:
    rows = [
        Row("ok", ms, ms * 0.9, ms * 1.1, 9, config={"block": b}) for b, ms in latencies.items()
    ]
    rows += [
        Row(status, reason="why\nmore", config={"block": -n}) for n, status in enumerate(failed)
    ]
    return stored({"sizes": sizes, "device": "card", "static": {"flag": "$a$"}}, rows)


def texts(axis: Any) -> list[str]:
    return [t.get_text() for t in axis.texts]


def test_one_tuning_is_bars_fastest_first_with_units_and_failures(
    figures: list[Any], tmp_path: Path
) -> None:
    draw([drawn({8: 3.0, 16: 2.0, 32: 1.0}, ("timeout", "wrong_result"), N=64)], tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = figures
    (axis,) = figure.axes
    assert [bar.get_width() for bar in axis.patches] == [1.0, 2.0, 3.0]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["block=32", "block=16", "block=8"]
    assert axis.yaxis_inverted()
    assert "milliseconds" in axis.get_xlabel()
    assert "some_op, card, flag=$a$" in axis.get_title()
    assert "N=64" in axis.get_title()
    assert [t.split() for t in texts(axis)] == [["1"], ["2", "2.00x"], ["3", "3.00x"]]
    (notes,) = (t.get_text() for t in figure.texts)
    assert notes.splitlines() == ["2 failed:", "  block=0: timeout: why", "  block=-1: wrong_result: why"]  # fmt: skip


def test_several_tunings_are_a_line_by_size_and_a_table_by_config(
    figures: list[Any], tmp_path: Path
) -> None:
    tunings = [drawn({8: 0.1 * n, 16: 0.2 * n}, ("timeout",), N=n) for n in (256, 64, 128)]
    draw(tunings, tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()
    (figure,) = figures
    upper, lower = figure.axes[:2]
    (line,) = upper.get_lines()
    assert list(line.get_xdata()) == [64, 128, 256]
    assert list(line.get_ydata()) == pytest.approx([6.4, 12.8, 25.6])
    assert (upper.get_xscale(), upper.get_xlabel()) == ("log", "N")
    assert "milliseconds" in upper.get_ylabel()
    assert [t.get_text() for t in lower.get_xticklabels()] == ["N=64", "N=128", "N=256"]
    assert [t.get_text() for t in lower.get_yticklabels()] == ["block=8", "block=16"]
    assert texts(lower) == ["1.00"] * 3 + ["2.00"] * 3
    assert "block=0: timeout: why (3 times)" in figure.texts[0].get_text()


def test_programs_of_several_sizes_and_flags_have_a_line_each(
    figures: list[Any], tmp_path: Path
) -> None:
    tunings = [drawn({8: float(m + n)}, M=m, N=n) for m in (1, 2) for n in (3, 4)]
    other = drawn({8: 5.0}, M=1, N=3)
    tunings.append(stored({**other.key, "static": {"flag": "b"}}, other.rows))
    tunings.append(stored({"bucket": {"M": "any"}}, []))  # nothing measured, no number
    draw(tunings, tmp_path / "p.png")
    upper = figures[0].axes[0]
    assert sorted(len(line.get_xdata()) for line in upper.get_lines()) == [1, 4]
    assert len(upper.get_legend().get_texts()) == 2


@pytest.mark.parametrize("count", [1, 2])
def test_tunings_without_a_right_config_can_be_drawn(
    figures: list[Any], tmp_path: Path, count: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw([drawn({}, ("timeout",), N=n) for n in range(count)], tmp_path / "p.png")
    assert "failed" in figures[0].texts[0].get_text()


def test_show_writes_the_picture_of_an_op(figures: list[Any], tmp_path: Path) -> None:
    for size in (100, 200):
        program = tileops.autotune(configs=[{"block": 8}, {"block": 32}], timer=FakeTimer(TIMES))
        program(fresh_const())(torch.randn(size))
    command = ["tune", "show", "tuned_double_const", "--picture"]
    assert main([*command, str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert list(figures[0].axes[0].get_lines()[0].get_xdata()) == [100, 200]
    for bad in (tmp_path / "p.unknown", tmp_path / "missing" / "p.png"):
        assert main([*command, str(bad)]) == 2


def test_without_matplotlib_the_message_names_the_extra(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(tune_picture, "importlib", type("Fake", (), {"import_module": missing}))
    with pytest.raises(tileops.TileopsError, match=r"pip install 'tileops-torch\[viz\]'"):
        draw([drawn({8: 1.0})], tmp_path / "p.png")
    assert not (tmp_path / "p.png").exists()
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert 'viz = ["matplotlib' in text
