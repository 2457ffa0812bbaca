"""The command ``python -m tileops build``: the kernels of a project as a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tileops.errors import ArgumentError
from tileops.packaging import config as configs
from tileops.packaging import kernels


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``build``."""
    parser = commands.add_parser("build", help="compile the ops of [tool.tileops] into a bundle")
    parser.add_argument("project", nargs="?", default=".", help="folder with pyproject.toml")
    parser.add_argument("--out", required=True, help="folder for the bundle")
    parser.set_defaults(run=build)


def build(options: argparse.Namespace) -> int:
    """Compile and print how many files the bundle has and how large they are."""
    project, out = Path(options.project).absolute(), Path(options.out).absolute()
    config = configs.read(project)
    if config is None:
        raise ArgumentError(f"{project}: pyproject.toml has no table [tool.tileops]")
    kernels.build(config, out)
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    print(f"{out}: {len(sizes)} files, {sum(sizes) / 1024:.0f} KiB")
    return 0
