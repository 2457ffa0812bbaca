"""The compile of a project's ops into a bundle, in a process of its own with a private cache."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tileops import forks, settings
from tileops.errors import ArgumentError, TileopsError
from tileops.packaging import config as configs
from tileops.packaging.config import Config, OpRequest

# What of this process's settings changes no code: all else is left out, so that a wheel does not
# depend on who builds it.
_KEPT = ("TILEOPS_CXX", "TILEOPS_NVRTC", "TILEOPS_COMPILE_WORKERS")


def build(config: Config, out: Path, source: Path | None = None) -> None:
    """Write the bundle of a project to the folder ``out``.

    ``source`` is the folder that holds the package, if not the one that the project names.
    TileopsError with the words of the process that compiles, where it fails.
    """
    root = (config.source if source is None else source).absolute()
    given = settings.as_environment()
    with tempfile.TemporaryDirectory(prefix="tileops-build-") as cache:
        environment = settings.module_environment(
            {
                **{name: given[name] for name in _KEPT if name in given},
                "TILEOPS_CACHE_DIR": cache,
                "TILEOPS_INSTALLED_BUNDLES": "0",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            drop=("TILEOPS_",),
        )
        known = environment["PYTHONPATH"]
        environment["PYTHONPATH"] = os.pathsep.join((str(root), known))
        done = forks.run_process(
            [sys.executable, "-m", "tileops.packaging.kernels", str(config.project), str(out)],
            capture_output=True,
            env=environment,
            cwd=cache,
        )
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace").strip()
        raise TileopsError(f"{config.project}: the kernels were not built:\n{text}")


def write(config: Config, out: Path) -> Path:
    """Write the bundle, in this process."""
    from tileops.jit.bundle_writer import bundle

    found = [op for request in config.ops for op in _ops_of(config, request)]
    return bundle(out, found, config.targets, ptx=config.ptx or ())


def _ops_of(config: Config, request: OpRequest) -> Iterable[Any]:
    """What ``tileops.bundle`` takes for one entry of ``ops``."""
    module, _, name = request.place.partition(":")
    where = f"{config.project / 'pyproject.toml'}: [tool.tileops] ops: {request.place!r}"
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        lacking = f"there is no module {error.name!r}"
        if error.name == "torch":
            lacking = (
                "its module imports torch, which this build does not have: add it to "
                "build-system.requires, or define the programs in a module without it"
            )
        raise ArgumentError(f"{where}: {lacking}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"{where}: {module} has no {part!r}")
        found = getattr(found, part)
    if request.configs is not None:
        return [(found, [_as_python(each) for each in request.configs])]
    return found if isinstance(found, list) else [found]


def _as_python(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}


def _main(project: str, out: str) -> int:
    try:
        config = configs.read(Path(project))
        if config is None:
            raise ArgumentError(f"{project}: pyproject.toml has no table [tool.tileops]")
        write(config, Path(out))
    except TileopsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
