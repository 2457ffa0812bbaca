"""The index of a bundle's programs: found without reading them, never believed, and not needed."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.programs import samples
from tileops import cache, log, option
from tileops.cache import sources
from tileops.errors import ArgumentError, CompileMissError
from tileops.jit import bundle_index

Rows = dict[str, dict[str, Any]]


@pytest.fixture
def named(
    sample_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """A copy of the bundle, with its index changed, which programs look into."""
    log._warned.clear()

    def name(change: Callable[[Rows], object] = lambda rows: None) -> Path:
        bundle = shutil.copytree(sample_bundle, tmp_path / "bundle")
        path = bundle / "index.json"
        document = json.loads(path.read_text())
        change(document["programs"])
        path.write_text(json.dumps(document))
        monkeypatch.setenv("TILEOPS_BUNDLE", str(bundle))
        return bundle

    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "cache"))
    return name


def call() -> None:
    """As the first call of a process that may not compile."""
    samples.axpy.unload()
    cache.store().clear_memory()
    x = torch.randn(100)
    with option.strict():
        assert torch.equal(samples.axpy(x, x, 1.0), x + x)


def test_it_says_what_each_program_is(sample_bundle: Path) -> None:
    document = json.loads((sample_bundle / "index.json").read_text())
    assert document["format"] == 1
    assert set(document["programs"]) == {p.name for p in (sample_bundle / "programs").iterdir()}
    for name, row in document["programs"].items():
        entry = cache.entry.read_entry(
            sample_bundle / "programs" / name, cache.files.Trust(True), name
        )
        assert row == {
            "call_abi": 1,
            "content": bundle_index.content_of(entry.key.fields),
            "identity": entry.identity,
        }


def test_only_the_program_itself_is_read(
    named: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = named()
    monkeypatch.delattr(bundle_index, "read_head")
    for path in bundle.glob("programs/*/manifest.json"):
        if json.loads(path.read_text())["manifest"]["name"] != "sample_axpy":
            path.write_text("never read")
    call()


def test_a_bundle_without_an_index_serves_as_before(named: Callable[..., Path]) -> None:
    (named() / "index.json").unlink()
    call()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 7}', '{"format": 1, "programs": [1]}'])
def test_a_damaged_index_is_one_warning(named: Callable[..., Path], text: str) -> None:
    (named() / "index.json").write_text(text)
    with pytest.warns(log.TileopsWarning, match=r"index\.json"):
        call()


def test_an_index_that_claims_other_programs_is_not_believed(named: Callable[..., Path]) -> None:
    def rotate(rows: Rows) -> None:
        values = list(rows.values())
        for name, row in zip(list(rows), values[1:] + values[:1], strict=True):
            rows[name] = row

    named(rotate)
    with pytest.raises(CompileMissError), pytest.warns(
        log.TileopsWarning, match=r"index\.json is not that of its programs"
    ):  # fmt: skip
        call()


def test_programs_for_another_form_of_calls_are_not_taken(named: Callable[..., Path]) -> None:
    named(lambda rows: [row.update(call_abi=2) for row in rows.values()])
    with pytest.raises(CompileMissError), pytest.warns(
        log.TileopsWarning, match="written for calls of form 2, this version of tileops has form 1"
    ):  # fmt: skip
        call()


def test_another_version_of_the_generators_is_told_in_the_log(
    named: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tileops")
    named()
    call()
    assert "layer=bundle" in caplog.text
    assert "codegen differs" not in caplog.text
    monkeypatch.setattr(sources, "digest", lambda: "0" * 64)
    call()
    assert "(codegen differs)" in caplog.text


def test_an_index_that_others_can_write_is_refused(named: Callable[..., Path]) -> None:
    path = named() / "index.json"
    os.chmod(path, 0o666)  # noqa: PTH101
    with pytest.raises(ArgumentError, match=r"index\.json can be written by every user"):
        call()
