"""An environment that has tileops and what builds need, and not torch, as pip would install them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def linked(folder: Path, *distributions: str) -> Path:
    """A folder for sys.path with tileops as installed, and the packages of distributions."""
    folder.mkdir()
    for name in ("tileops", "csrc"):
        (folder / name).symlink_to(ROOT / name)
    info = folder / "tileops_torch-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tileops-torch\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(_entry_points())
    for name in distributions:
        found = metadata.distribution(name)
        tops = {Path(str(file)).parts[0] for file in found.files or ()}
        for top in sorted(
            t for t in tops if t not in ("..", "__pycache__") and not t.endswith(".pth")
        ):
            (folder / top).symlink_to(Path(str(found.locate_file(top))).absolute())
    return folder


def _entry_points() -> str:
    toml = importlib.import_module("tomllib" if importlib.util.find_spec("tomllib") else "tomli")
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    return "\n".join(lines) + "\n"


def environment(folder: Path, *paths: Path) -> Path:
    """A new environment without pip that sees the folders ``paths``; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").iterdir()) / "site-packages"
    (site / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder / "bin" / "python"


def run(python: Path, text: str, folder: Path, **variables: str) -> str:
    """What a program prints in the environment, with no more variables than these."""
    done = subprocess.run(
        [python, "-c", text],
        cwd=folder, env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def torch_paths() -> list[Path]:
    """Where this process finds packages: torch and all that it needs."""
    return [Path(path) for path in sys.path if path.endswith("site-packages")]
