"""Our own wheel with kernels inside: what is added to it, and that it stays a wheel."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("add_kernels", ROOT / ".ci/add_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bundle_goes_into_a_wheel(script: ModuleType, tmp_path: Path) -> None:
    wheel, bundle = tmp_path / "tileops_torch-0.1.0-py3-none-any.whl", tmp_path / "bundle"
    record = "tileops_torch-0.1.0.dist-info/RECORD"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tileops/__init__.py", "")
        archive.writestr(record, f"tileops/__init__.py,sha256=47DEQpj8,0\n{record},,\n")
    (bundle / "ops/one").mkdir(parents=True)
    (bundle / "bundle.json").write_text("{}")
    (bundle / "ops/one/op.json").write_text("[]" * 1000)
    assert 0 < script.add(wheel, bundle) < 1000  # compressed
    first = wheel.read_bytes()
    script.add(wheel, bundle)  # once more: in place of the former one
    assert wheel.read_bytes() == first
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert names == [
            "tileops/__init__.py", "tileops/_kernels/bundle.json",
            "tileops/_kernels/ops/one/op.json", record,
        ]  # fmt: skip
        lines = archive.read(record).decode().splitlines()
        assert [line.split(",")[0] for line in lines] == names
        for line in lines[1:3]:
            name, digest, size = line.split(",")
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, int(size)) == (f"sha256={found}", len(data))
