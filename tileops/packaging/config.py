"""What a project asks for: the table ``[tool.tileops]`` of its pyproject.toml."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops.errors import ArgumentError

FOLDER = "_kernels"  # of the bundle, inside the package
GROUP = "tileops.kernels"  # of the entry points by which installed bundles are found
_KEYS = ("package", "ops", "targets", "ptx", "source")


@dataclass(frozen=True)
class OpRequest:
    """One entry of ``ops``: where it is, ``module:name``, and its configurations, if it has some.

    The name leads to a program or kernel, or to a list of what ``tileops.bundle`` takes.
    """

    place: str
    configs: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True)
class Config:
    """The kernels of a project. ``source`` is the folder that holds the package."""

    project: Path
    package: str
    ops: tuple[OpRequest, ...]
    targets: tuple[str, ...]
    ptx: str | None
    source: Path

    @property
    def folder(self) -> str:
        """The folder of the bundle in a wheel: ``acme/ops/_kernels``."""
        return "/".join((*self.package.split("."), FOLDER))

    @property
    def has_cpu_code(self) -> bool:
        """Whether the bundle holds libraries, so that a wheel with it is for one platform."""
        return any(target.split(":")[0] == "cpu" for target in self.targets)


def read(project: Path) -> Config | None:
    """The configuration of the project in this folder; None if it has no ``[tool.tileops]``.

    ArgumentError that names the file, the key, what was expected and what is there.
    """
    file = project / "pyproject.toml"
    try:
        data = file.read_bytes()
    except OSError:
        return None
    if b"tileops" not in data:  # this runs in the build of every project, with or without kernels
        return None
    content = _parsed(file, data)
    table = content.get("tool", {}).get("tileops")
    if table is None:
        return None
    return _Reader(file, table, content.get("project", {})).config(project)


def _parsed(file: Path, data: bytes) -> dict[str, Any]:
    try:
        toml: Any = importlib.import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.10
        toml = importlib.import_module("tomli")
    try:
        content: dict[str, Any] = toml.loads(data.decode())
    except ValueError as error:
        raise ArgumentError(f"{file}: {error}") from None
    return content


class _Reader:
    """Reads the table, and says what is wrong with it."""

    def __init__(self, file: Path, table: Any, project: Mapping[str, Any]) -> None:  # noqa: ANN401
        self.file = file
        self.table = table
        self.project = project

    def config(self, folder: Path) -> Config:
        if not isinstance(self.table, dict):
            raise self._error("", "a table", self.table)
        unknown = sorted(set(self.table) - set(_KEYS))
        if unknown:
            raise ArgumentError(
                f"{self.file}: [tool.tileops]: unknown key {unknown[0]!r}; expected some of "
                f"{', '.join(_KEYS)}"
            )
        package = self._text("package")
        if not all(part.isidentifier() for part in package.split(".")):
            raise self._error("package", "the name of a package, such as acme.ops", package)
        ptx = self._text("ptx") if "ptx" in self.table else None
        config = Config(
            folder, package, self._ops(), self._targets(), ptx, self._source(folder, package)
        )
        self._require_entry_point(config)
        return config

    def _error(self, key: str, expected: str, got: object) -> ArgumentError:
        name = f"[tool.tileops] {key}".strip()
        return ArgumentError(f"{self.file}: {name}: expected {expected}, got {got!r}")

    def _text(self, key: str) -> str:
        value = self.table.get(key)
        if not isinstance(value, str) or not value:
            raise self._error(key, "a string", value)
        return value

    def _ops(self) -> tuple[OpRequest, ...]:
        value = self.table.get("ops")
        if not isinstance(value, list) or not value:
            raise self._error("ops", "a list of 'module:name'", value)
        return tuple(map(self._op, value))

    def _op(self, value: object) -> OpRequest:
        configs = None
        place = value
        if isinstance(value, dict):
            if set(value) - {"op", "configs"}:
                raise self._error("ops", "a table with 'op' and 'configs'", value)
            place, configs = value.get("op"), value.get("configs", [{}])
            is_list = isinstance(configs, list) and bool(configs)
            if not is_list or not all(isinstance(each, dict) for each in configs):
                raise self._error(f"ops, configs of {place}", "a list of tables", configs)
        if not isinstance(place, str) or len(place.split(":")) != 2 or not all(place.split(":")):
            raise self._error("ops", "'module:name', or a table with 'op' and 'configs'", value)
        return OpRequest(place, None if configs is None else tuple(configs))

    def _targets(self) -> tuple[str, ...]:
        value = self.table.get("targets")
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise self._error("targets", "a list such as ['cuda:sm_90', 'cpu:x86-64-v3']", value)
        named = [v for v in value if v in ("cpu", "cuda", "auto")]
        if named:
            raise self._error("targets", "an architecture too, such as cpu:x86-64-v3", named[0])
        return tuple(value)

    def _source(self, folder: Path, package: str) -> Path:
        below = Path(*package.split("."))
        if "source" in self.table:
            return folder / self._text("source")
        return folder / "src" if (folder / "src" / below).is_dir() else folder

    def _require_entry_point(self, config: Config) -> None:
        """Refuse a project whose installed bundle nobody would find."""
        if "entry-points" in self.project.get("dynamic", ()):
            return
        points = self.project.get("entry-points", {}).get(GROUP, {})
        value = f"{config.package}:{FOLDER}"
        if value not in points.values():
            name = config.package.replace(".", "_")
            raise ArgumentError(
                f"{self.file}: installed kernels are found by an entry point, which is missing; "
                f'add [project.entry-points."{GROUP}"] with the line {name} = "{value}"'
            )
