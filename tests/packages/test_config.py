"""The table [tool.tileops]: what it takes, and that each mistake names the file, the key and what is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tileops.errors import ArgumentError
from tileops.packaging import config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/package"


def read(
    folder: Path, text: str, points: str = 'acme = "acme.ops:_kernels"'
) -> config.Config | None:
    entry = f'[project.entry-points."tileops.kernels"]\n{points}\n'
    (folder / "pyproject.toml").write_text(f"{entry}[tool.tileops]\n{text}")
    return config.read(folder)


GOOD = """
package = "acme.ops"
ops = ["acme.ops.relu:relu", {op = "acme.ops.mm:mm", configs = [{M = 4096, dtype = "float16"}]}]
targets = ["cuda:sm_80", "cpu:x86-64-v3"]
"""


def test_a_project(tmp_path: Path) -> None:
    (tmp_path / "src/acme/ops").mkdir(parents=True)
    found = read(tmp_path, GOOD + 'ptx = "sm_80"')
    assert found is not None
    assert [op.place for op in found.ops] == ["acme.ops.relu:relu", "acme.ops.mm:mm"]
    assert [op.configs for op in found.ops] == [None, ({"M": 4096, "dtype": "float16"},)]
    assert (found.folder, found.source, found.ptx) == (
        "acme/ops/_kernels",
        tmp_path / "src",
        "sm_80",
    )
    assert found.has_cpu_code
    assert config.read(EXAMPLE) is not None
    assert config.read(tmp_path / "nowhere") is None
    (tmp_path / "pyproject.toml").write_text("# not of tileops\n")
    assert config.read(tmp_path) is None


BAD = [
    ("package", GOOD.replace("acme.ops\"\n", "acme-ops\"\n", 1), "package: expected the name of a package, such as acme.ops, got 'acme-ops'"),
    ("no package", GOOD.replace("package =", "#"), "package: expected a string, got None"),
    ("key", GOOD + "target = 5", "unknown key 'target'; expected some of package, ops, targets, ptx, source"),
    ("ops", GOOD.replace("acme.ops.relu:relu", "acme.ops.relu"), "ops: expected 'module:name', or a table with 'op' and 'configs', got 'acme.ops.relu'"),
    ("configs", GOOD.replace("[{M = 4096, dtype = \"float16\"}]", "{M = 4096}"), "ops, configs of acme.ops.mm:mm: expected a list of tables, got {'M': 4096}"),
    ("targets", GOOD.replace("cpu:x86-64-v3", "cpu"), "targets: expected an architecture too, such as cpu:x86-64-v3, got 'cpu'"),
    ("ptx", GOOD + "ptx = 80", "ptx: expected a string, got 80"),
    ("toml", GOOD + "ptx = ", "pyproject.toml: "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/pyproject.toml: ")
    assert message in str(caught.value)


def test_a_bundle_that_nobody_would_find(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r'with the line acme_ops = "acme\.ops:_kernels"'):
        read(tmp_path, GOOD, points='acme = "acme.ops:kernels"')


def test_the_command_names_what_fails(tmp_path: Path) -> None:
    read(tmp_path, GOOD.replace("cuda:sm_80", "cuda:sm_90"))
    done = subprocess.run(
        [sys.executable, "-m", "tileops", "build", tmp_path, "--out", tmp_path / "out"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "ops: 'acme.ops.relu:relu': there is no module 'acme'" in done.stderr
    assert not (tmp_path / "out").exists()
