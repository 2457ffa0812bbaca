"""Owns looking up compiled programs in the bundles that ``TILEOPS_BUNDLE`` names."""

from __future__ import annotations

import threading
from pathlib import Path

from tileops import cache, log, settings
from tileops.cache.entry import DamagedError, read_entry, read_head
from tileops.cache.files import Trust
from tileops.cache.key import canonical
from tileops.codegen.kernel_code import Specialization
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.target import CPU_LEVELS, Target

# What a program is, whoever compiled it: IR, options, target, facts.
Identity = tuple[str, str, str, str]

_guard = threading.Lock()
_indexes: dict[tuple[str, int, int], dict[Identity, str]] = {}


def find(program: Program, target: Target, spec: Specialization) -> cache.Entry | None:
    """The compiled program from the first bundle that has it, verified; None if none has.

    On the CPU code of a lower level than the target's serves too. A damaged program is a miss with
    one warning.
    """
    ir = print_program(program)
    options = canonical([list(pair) for pair in program.options])
    facts = canonical({"fast": spec.fast, "index64": spec.index64})
    for text in settings.current().bundle:
        programs = Path(text) / "programs"
        index = _index_of(programs)
        for name in _serving(target):
            found = index.get((ir, options, name, facts))
            entry = None if found is None else _read(programs, found)
            if entry is not None:
                return entry
    return None


def _serving(target: Target) -> list[str]:
    if target.kind != "cpu" or not target.arch.startswith("x86-64"):
        return [str(target)]
    levels = [level for level in CPU_LEVELS if level.startswith("x86-64")]
    lower = levels[: levels.index(target.arch) + 1]
    return [f"cpu:{level}" for level in reversed(lower)]


def _index_of(programs: Path) -> dict[Identity, str]:
    try:
        status = (programs.parent / "bundle.json").stat()
    except OSError as error:
        log.warn_once(f"bundle:{programs}", f"TILEOPS_BUNDLE: {programs.parent}: {error.strerror}")
        return {}
    key = (str(programs), status.st_ino, status.st_mtime_ns)
    with _guard:
        if key not in _indexes:
            _indexes[key] = _read_index(programs)
        return _indexes[key]


def _read_index(programs: Path) -> dict[Identity, str]:
    index: dict[Identity, str] = {}
    try:
        folders = sorted(programs.iterdir())
    except OSError as error:
        log.warn_once(f"bundle:{programs}", f"TILEOPS_BUNDLE: {programs}: {error.strerror}")
        return index
    for folder in folders:
        try:
            key, _ = read_head(folder, _TRUST)
        except (DamagedError, OSError) as error:
            log.warn_once(f"bundle:{folder}", f"damaged program in a bundle: {error}")
            continue
        fields = key.fields
        identity = (fields["ir"], fields["options"], fields["target"], fields["specialization"])
        index[identity] = folder.name
    return index


def _read(programs: Path, name: str) -> cache.Entry | None:
    try:
        return read_entry(programs / name, _TRUST, name)
    except (DamagedError, OSError) as error:
        log.warn_once(f"bundle:{name}", f"damaged program in a bundle, compiling anew: {error}")
        return None


# A bundle is named by its user, whoever wrote it, as a library is.
_TRUST = Trust(shared=True)
