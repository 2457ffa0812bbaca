"""The distribution is ``tileops-torch``: beside another project's ``tileops``, importing says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.imports import PACKAGE

SCRIPT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tileops
assert tileops.__file__.startswith(FOLDER)
print("|".join(f"{w.category.__name__}: {w.message}" for w in caught))
"""


@pytest.mark.parametrize(
    ("others", "is_said"),
    [
        ([], False),
        (["tileops_torch-0.1.0.dist-info"], False),
        (["tileops_torch-0.1.0.dist-info", "tileops_extras-1.0.dist-info"], False),
        (["tileops-2.0.dist-info"], False),  # ours is no distribution here: a copy, or a checkout
        (["tileops_torch-0.1.0.dist-info", "tileops-2.0.dist-info"], True),
    ],
)
def test_two_distributions_of_one_package(others: list[str], is_said: bool, tmp_path: Path) -> None:
    (tmp_path / "tileops").mkdir()
    (tmp_path / "tileops" / "__init__.py").write_bytes((PACKAGE / "__init__.py").read_bytes())
    for name in others:
        (tmp_path / name).mkdir()
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})" + SCRIPT.replace(
        "FOLDER", repr(str(tmp_path))
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    said = done.stdout.strip()
    assert bool(said) == is_said, said
    if is_said:
        assert "pip uninstall -y tileops tileops-torch" in said
        assert "tileops-2.0, another project" in said
