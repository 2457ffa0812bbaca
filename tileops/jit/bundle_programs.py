"""Compiled programs in bundles: those that the settings name, and loaded ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tileops import cache, forks, log
from tileops.cache.entry import DamagedError, read_entry, read_head
from tileops.cache.files import Trust, UntrustedError
from tileops.errors import ArgumentError
from tileops.op import bundle_paths
from tileops.target import CPU_LEVELS, Target

if TYPE_CHECKING:
    from tileops.op.names import Identity

# What a program is, whoever compiled it: IR, options, target, facts.
_Content = tuple[str, str, str, str]


@dataclass(frozen=True)
class Named:
    """A program: the name of its op, where it was defined, and its identity if that is needed."""

    name: str
    origin: str
    identity: Callable[[], Identity]


_reading = forks.renewed_lock()
_indexes: dict[tuple[str, int, int], dict[_Content, str]] = {}
_compared: set[tuple[str, str]] = set()


def find(
    texts: Mapping[str, str], target: Target, named: Named | None = None
) -> cache.Entry | None:
    """The verified program from the first bundle that has it for ``target``, or None.

    ``texts`` are the fields of its key; neither the toolchain nor ``codegen`` counts.
    On the CPU, code for a lower level than the target's serves too. One warning says that a
    bundle's op of this name is another program, or that its program is damaged. ArgumentError for a
    bundle that someone else could have written.
    """
    for text, shared in bundle_paths.serving():
        programs, trust = Path(text) / "programs", Trust(shared=shared)
        _require(trust, programs.parent, programs)
        index = _index_of(programs, trust)
        for name in _serving(target):
            found = index.get((texts["ir"], texts["options"], name, texts["specialization"]))
            if found is None:
                continue
            try:
                return read_entry(programs / found, trust, found)
            except (DamagedError, OSError) as error:
                log.warn_once(
                    f"bundle:{found}", f"damaged program in a bundle, compiling anew: {error}"
                )
        # Installed packages may have ops of one name.
        if named is not None and not bundle_paths.is_installed(text):
            _warn_of_another(programs.parent, named, trust)
    return None


def _require(trust: Trust, *paths: Path) -> None:
    for path in paths:
        try:
            trust.require(path, path.stat())
        except OSError:
            continue  # the read says what is wrong
        except UntrustedError as error:
            raise ArgumentError(
                f"bundle: {error}, and what a bundle holds is code "
                "(TILEOPS_CACHE_TRUST_SHARED=1 allows it)"
            ) from None


def _warn_of_another(bundle: Path, named: Named, trust: Trust) -> None:
    """Warn once if the bundle's op of this name is another program, which explains a miss."""
    namespace, _, name = named.name.partition("::")
    folder = name if namespace == "tileops" else f"{namespace}.{name}"
    file = bundle / "ops" / folder / "op.json"
    if (str(file), named.name) in _compared:
        return
    _compared.add((str(file), named.name))
    _require(trust, file.parent, file)
    try:
        document = json.loads(file.read_bytes())
        definition, parts = document.get("definition"), dict(document.get("parts", {}))
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        log.warn_once(f"bundle:{file}", f"bundle: {file}: {error!s:.200}")
        return
    identity = named.identity()
    if definition is not None and definition != identity.digest:
        log.warn_once(
            f"bundle:{file}",
            f"{file}: its op {named.name} is another program than that of {named.origin} (they "
            f"differ in: {identity.difference(parts)}); its kernels are not taken",
        )


def _serving(target: Target) -> list[str]:
    """The targets whose code runs on ``target``, the best one first."""
    if target.kind != "cpu" or not target.arch.startswith("x86-64"):
        return [str(target)]
    levels = [level for level in CPU_LEVELS if level.startswith("x86-64")]
    lower = levels[: levels.index(target.arch) + 1]
    return [f"cpu:{level}" for level in reversed(lower)]


def _index_of(programs: Path, trust: Trust) -> dict[_Content, str]:
    try:
        status = (programs.parent / "bundle.json").stat()
    except OSError as error:
        log.warn_once(f"bundle:{programs}", f"bundle: {programs.parent}: {error.strerror}")
        return {}
    _require(trust, programs.parent / "bundle.json")
    key = (str(programs), status.st_ino, status.st_mtime_ns)
    with _reading:
        if key not in _indexes:
            _indexes[key] = _read_index(programs, trust)
        return _indexes[key]


def _read_index(programs: Path, trust: Trust) -> dict[_Content, str]:
    index: dict[_Content, str] = {}
    try:
        folders = sorted(programs.iterdir())
    except OSError as error:
        log.warn_once(f"bundle:{programs}", f"bundle: {programs}: {error.strerror}")
        return index
    for folder in folders:
        _require(trust, folder, *sorted(folder.iterdir()))
        try:
            key, _ = read_head(folder, trust)
        except (DamagedError, OSError) as error:
            log.warn_once(f"bundle:{folder}", f"damaged program in a bundle: {error}")
            continue
        of = key.fields
        index[of["ir"], of["options"], of["target"], of["specialization"]] = folder.name
    return index
