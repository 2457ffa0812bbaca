"""Bundles of installed packages, found by entry points at the first miss of a process."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

from tileops import log, settings
from tileops.op import bundle_paths

GROUP = "tileops.kernels"
_is_done: list[bool] = []


def look() -> None:
    """Let programs look into the bundles of installed packages; later calls do nothing.

    No package is imported. An entry point whose package has no bundle, as in an editable install,
    is a line of the log's topic ``cache``.
    """
    if _is_done or not settings.current().installed_bundles:
        return
    for point in metadata.entry_points(group=GROUP):
        folder = _folder_of(point.value)
        if folder is None:
            log.emit("cache", f"no bundle in {point.value}, which {GROUP}: {point.name} names")
        else:
            bundle_paths.add_installed(str(folder))
    _is_done.append(True)  # at the end: another thread that asks meanwhile looks itself


def _folder_of(value: str) -> Path | None:
    """The bundle that ``package.module:folder`` means, or None."""
    package, _, folder = value.partition(":")
    first, *others = package.strip().split(".")
    try:
        spec = importlib.util.find_spec(first)  # a name without dots: this imports nothing
    except (ImportError, ValueError):
        return None
    for location in [] if spec is None else spec.submodule_search_locations or []:
        found = Path(location, *others, folder.strip()).absolute()
        if folder and (found / "bundle.json").is_file():
            return found
    return None
