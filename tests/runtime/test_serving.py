"""Which code serves a program with source on a GPU: from the cache where the compiler is missing, and from bundles."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.runtime.conftest import FakeDriver
from tileops import cache, option
from tileops.cache.remote import fleet
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, CompileMissError, ToolchainError
from tileops.jit import tool_versions
from tileops.jit.compiling import obtain
from tileops.jit.provider import Wanted
from tileops.jit.serving import Form, UnfitError, forms_for, in_form
from tileops.target import parse_target


@tileops.jit(name="served_axpy")
def axpy(X, Y, alpha: T.float32):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            Z[bx * 256 + i] = alpha * X[bx * 256 + i] + Y[bx * 256 + i]
    return Z


def asked(target: str, gpu: int | None = 0) -> cache.Entry:
    """What a call on a GPU of this target gets."""
    cache.store().clear_memory()
    axpy.op
    op = axpy._eager.op
    assert op is not None
    wanted = Wanted(op, op.variant(()), parse_target(target), Specialization(fast=True))
    return obtain(replace(axpy._eager.request_for(wanted), gpu=gpu))


def image(entry: cache.Entry) -> str:
    return str(entry.manifest["record"]["launches"][0]["image"])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has the program for sm_80."""
    root = tmp_path_factory.mktemp("served")
    x = torch.ones(10)
    with option.cache_dir(root / "cache"):
        tileops.warmup([(axpy, x, x, 1.0)], target="cuda:sm_80")
        tileops.bundle(root / "cubins", axpy, "cuda:sm_80")
    with option.cache_dir(root / "other"):
        tileops.bundle(root / "ptx", axpy, ["cuda:sm_90"], ptx="sm_80")
    return root


@pytest.fixture
def no_triton(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The filled cache on a machine without Triton, in strict mode."""

    def lack(*_: object) -> dict[str, str]:
        raise ToolchainError("compiling for a GPU needs Triton")

    monkeypatch.setattr(tool_versions, "of_program", lack)
    with option.cache_dir(filled / "cache"), option.strict():
        yield


@pytest.fixture
def only_bundle(filled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Names a bundle; strict mode, an empty cache."""
    with option.cache_dir(tmp_path / "empty"), option.strict():
        yield lambda name: monkeypatch.setenv("TILEOPS_BUNDLE", str(filled / name))


def test_the_order_of_forms() -> None:
    def of(target: str, gpu: int | None = 0) -> list[str]:
        return [str(form) for form in forms_for(parse_target(target), gpu)]

    ptx = [f"PTX of cuda:sm_{n}" for n in (89, 87, 86, 80)]
    assert of("cuda:sm_90") == ["code for cuda:sm_90a", *ptx]
    assert of("cuda:sm_89") == [
        "code for cuda:sm_89", "code for cuda:sm_86", "code for cuda:sm_80", *ptx[1:]
    ]  # fmt: skip
    assert of("cuda:sm_87") == ["code for cuda:sm_87", *ptx[2:]]
    assert of("cuda:sm_80") == ["code for cuda:sm_80"]
    assert of("cuda:sm_90", None) == ["code for cuda:sm_90a"]
    assert of("hip:gfx942") == ["code for hip:gfx942"]
    assert of("cpu:x86-64-v3", None) == ["code for cpu:x86-64-v3", "code for cpu:x86-64-v2"]


@pytest.mark.usefixtures("fake", "no_triton")
def test_the_cache_serves_other_gpus_where_triton_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tileops")
    assert image(asked("cuda:sm_80")) == image(asked("cuda:sm_86")) == "launch0.cubin"
    entry = asked("cuda:sm_90")
    assert image(entry) == "launch0.ptx"
    assert b".target sm_80" in entry.files["launch0.ptx"]
    assert "code for cuda:sm_80; made by ptxas" in caplog.text
    assert "PTX of cuda:sm_80, which the driver compiles; made by ptxas" in caplog.text
    with pytest.raises(CompileMissError, match=r"for cuda:sm_90a .*key unknown"):
        asked("cuda:sm_90", None)  # no device here would run it
    with option.toolchain_match("exact"), pytest.raises(CompileMissError):
        asked("cuda:sm_90")


@pytest.mark.usefixtures("no_triton")
def test_an_older_driver_is_named_with_its_version(fake: FakeDriver) -> None:
    fake.library.fake_newest_ptx(85)
    fake.library.fake_version(12060)
    with pytest.raises(
        CompileMissError,
        match=r"; PTX \.version [0-9.]+ for sm_80, the driver is for CUDA 12\.6: "
        r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    ):
        asked("cuda:sm_90")


@pytest.mark.usefixtures("fake")
def test_where_triton_is_there_it_makes_the_devices_own_code(filled: Path) -> None:
    with option.cache_dir(filled / "cache"), option.strict(), option.toolchain_match("any"):
        assert image(asked("cuda:sm_80")) == "launch0.cubin"
        for target in ("cuda:sm_86", "cuda:sm_120"):
            with pytest.raises(CompileMissError):
                asked(target)


@pytest.mark.usefixtures("fake")
def test_a_bundle_serves_other_gpus(only_bundle: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tileops")
    only_bundle("ptx")
    assert image(asked("cuda:sm_89")) == "launch0.cubin"
    assert image(asked("cuda:sm_120")) == "launch0.ptx"
    assert "layer=bundle" in caplog.text
    assert "(PTX of cuda:sm_80, which the driver compiles)" in caplog.text
    own = asked("cuda:sm_90")
    assert (image(own), own.key.fields["target"]) == ("launch0.cubin", "cuda:sm_90a")
    only_bundle("cubins")
    assert image(asked("cuda:sm_89")) == "launch0.cubin"
    with pytest.raises(CompileMissError, match="cuda:sm_80 has no PTX beside its cubin"):
        asked("cuda:sm_90")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("keep", ["all", "none"])
def test_a_remote_serves_newer_gpus_with_ptx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    monkeypatch.setenv("TILEOPS_REMOTE_UNSIGNED", "1")
    monkeypatch.setenv("TILEOPS_REMOTE_TIMEOUT_SECONDS", "30")
    (tmp_path / "share").mkdir()
    url = f"file://{tmp_path}/share"
    with (
        option.cache_dir(tmp_path / "writer"),
        option.cache_keep(keep),
        option.remote(url, mode="readwrite"),
    ):
        asked("cuda:sm_80")
        writer = fleet.current()
        assert writer is not None
        assert writer.write_back.flush(30)

    def lack(*_: object) -> dict[str, str]:
        raise ToolchainError("compiling for a GPU needs Triton")

    monkeypatch.setattr(tool_versions, "of_program", lack)
    with option.cache_dir(tmp_path / "node"), option.remote(url), option.strict():
        assert image(asked("cuda:sm_86")) == "launch0.cubin"
        if keep == "all":
            assert image(asked("cuda:sm_120")) == "launch0.ptx"
            return
        with pytest.raises(CompileMissError, match="cuda:sm_80 has no PTX beside its cubin"):
            asked("cuda:sm_120")


@pytest.mark.usefixtures("fake", "no_triton")
def test_what_does_not_fit() -> None:
    entry = asked("cuda:sm_80")
    record = entry.manifest["record"]
    launches = [{**record["launches"][0], "shared_bytes": 150_000}]
    large = replace(entry, manifest={**entry.manifest, "record": {**record, "launches": launches}})
    older = Form(parse_target("cuda:sm_80"))
    assert in_form(large, older, parse_target("cuda:sm_80"), 0) is large
    assert in_form(large, replace(older, is_ptx=True), parse_target("cuda:sm_90"), 0) is not large
    with pytest.raises(
        UnfitError, match="needs 150000 bytes of shared memory, cuda:sm_86 has 101376"
    ):
        in_form(large, older, parse_target("cuda:sm_86"), 0)


def test_what_bundles_with_ptx_refuse(filled: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"ptx='sm_90': expected an architecture whose PTX newer"
    ):
        tileops.bundle(tmp_path / "b", axpy, "cpu", ptx=["sm_80", "sm_90"])
    missing = pytest.raises(ArgumentError, match=r"served_axpy for cuda:sm_80 has no launch0\.ptx")
    with option.cache_dir(tmp_path / "cache"), option.cache_keep("none"), missing:
        tileops.bundle(tmp_path / "b", axpy, "cuda:sm_80", ptx="sm_80")
    assert not (tmp_path / "b").exists()
    assert list((filled / "ptx" / "programs").glob("*/launch0.ptx"))
    assert not list((filled / "cubins" / "programs").glob("*/launch0.ptx"))
