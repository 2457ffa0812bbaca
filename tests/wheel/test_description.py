"""What a wheel says of itself: Pythons, tags, and its bill of materials; and the link without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from distribution import interpreters, native, plain_build, sbom, torch_stub
from distribution.build_wheel import source_date

VERSION = "{}.{}".format(*sys.version_info)
INCLUDE = sysconfig.get_paths()["include"]


def test_an_interpreter_is_described() -> None:
    found = interpreters.described(sys.executable)
    assert found.version == VERSION
    assert found.tag == f"cp{VERSION.replace('.', '')}"
    assert found.suffix == sysconfig.get_config_var("EXT_SUFFIX")
    assert (Path(found.include[0]) / "Python.h").is_file()


def test_headers_alone_are_described_alike() -> None:
    assert interpreters.described(INCLUDE) == interpreters.Interpreter(
        VERSION, (INCLUDE,), sysconfig.get_config_var("EXT_SUFFIX")
    )


@pytest.mark.parametrize(
    ("patchlevel", "message"),
    [
        (None, "has no headers of Python"),
        ("#define PY_MAJOR_VERSION 3\n#define PY_MINOR_VERSION 9\n", "CPython 3.10 or newer"),
        ("", "CPython 3.10 or newer"),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, patchlevel: str | None, message: str) -> None:
    if patchlevel is not None:
        (tmp_path / "patchlevel.h").write_text(patchlevel)
        (tmp_path / "pyconfig.h").touch()
    with pytest.raises(ValueError, match=message):
        interpreters.described(str(tmp_path))


def test_programs_that_are_not_python_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not run"):
        interpreters.described(str(tmp_path / "python3.12"))
    with pytest.raises(ValueError, match="is not a Python"):
        interpreters.described("/bin/cat")


def test_this_python_is_found_once() -> None:
    found = [interpreters.described(place).version for place in interpreters.found()]
    assert found == sorted(set(found), key=lambda v: int(v.partition(".")[2]))
    assert set(found) <= set(interpreters.SUPPORTED)


def test_a_release_lists_each_python_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not plain_build.is_release()
    monkeypatch.setenv("TILEOPS_WHEEL_PYTHONS", os.pathsep.join([sys.executable, INCLUDE]))
    assert plain_build.is_release()
    assert [python.version for python in plain_build.wanted()] == [VERSION]


def test_the_date_is_the_callers_or_the_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert source_date() >= 315532800  # 1980, where zip begins
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert source_date() == 1700000000


def test_the_stub_has_torchs_names(tmp_path: Path) -> None:
    torch_stub.write(tmp_path, native.TORCH_HEADER, "g++")
    done = subprocess.run(
        ["nm", "-D", "--defined-only", tmp_path / "libtorch_cpu.so"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = sorted(line.split()[-1] for line in done.stdout.splitlines())
    assert [name for name in names if "torch_" in name] == torch_stub.names(
        native.TORCH_HEADER.read_text()
    )


def bill(folder: Path) -> str:
    (folder / "a.so").write_bytes(b"one")
    return sbom.describe(
        name="tileops-torch", version="1.2.3", epoch=1700000000,
        requirements=["torch>=2.10"], optional=["triton>=3.6,<3.10"],
        compiled_in={"pybind11": ("3.1.0", "BSD-3-Clause")}, tools={"g++": "12.2.0"},
        binaries={"tileops/a.so": folder / "a.so"},
    )  # fmt: skip


def test_the_bill_is_cyclonedx_and_the_same_each_time(tmp_path: Path) -> None:
    text = bill(tmp_path)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert bill(tmp_path) == text
    found: dict[str, Any] = json.loads(text)
    assert found["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    parts = {part["name"]: part for part in found["components"]}
    assert sorted(parts) == ["pybind11", "tileops/a.so", "torch", "triton"]
    assert parts["pybind11"]["version"] == "3.1.0"
    assert parts["triton"]["scope"] == "optional"
    digest = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"  # sha256 of "one"
    assert parts["tileops/a.so"]["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_another_binary_is_another_bill(tmp_path: Path) -> None:
    before = json.loads(bill(tmp_path))["serialNumber"]
    (tmp_path / "b").mkdir()
    after = sbom.describe(
        name="tileops-torch", version="1.2.3", epoch=1700000000, requirements=[], optional=[],
        compiled_in={}, tools={}, binaries={},
    )  # fmt: skip
    assert json.loads(after)["serialNumber"] != before


def test_the_version_of_pybind11_is_its_headers() -> None:
    import pybind11

    assert native.pybind_version(native.pybind_include()) == pybind11.__version__
