"""Compiled programs in bundles: those that the settings name, and loaded ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tileops import cache, forks, log
from tileops.cache.entry import DamagedError, read_entry
from tileops.cache.files import Trust, UntrustedError, children
from tileops.cache.identity import identity
from tileops.errors import ArgumentError
from tileops.jit import bundle_index
from tileops.jit.bundle_index import INDEX, Row, Rows, content_of, is_usable
from tileops.jit.look_up import LookUp
from tileops.jit.record import CALL_ABI
from tileops.jit.serving import UnfitError, forms_for, in_form
from tileops.op import bundle_paths
from tileops.target import Target

if TYPE_CHECKING:
    from tileops.op.names import Identity


@dataclass(frozen=True)
class Named:
    """A program: the name of its op, where it was defined, and its identity if that is needed."""

    name: str
    origin: str
    identity: Callable[[], Identity]


_reading = forks.renewed_lock()
_indexes: dict[tuple[str, int, int], Rows] = {}
_compared: set[tuple[str, str]] = set()


def find(
    texts: Mapping[str, str],
    target: Target,
    device: int | None,
    named: Named | None,
    looked: LookUp,
) -> cache.Entry | None:
    """The verified program from the first bundle that has it for ``target``, or None.

    ``texts`` are the fields of its key; neither the toolchain nor ``codegen`` counts, but the form
    of calls must be this version's. Code for other targets serves as ``forms_for`` says, with
    ``device``. One warning says that a bundle's op of this name is another program, or that its
    program is damaged. ArgumentError for a bundle that someone else could have written.
    """
    for text, shared in bundle_paths.serving():
        bundle, trust = Path(text), Trust(shared=shared)
        _require(trust, bundle, bundle / "programs")
        rows = _rows_of(bundle, trust)
        for form in forms_for(target, device):
            wanted = {**texts, "target": str(form.target)}
            for row in rows.get(content_of(wanted), ()):
                entry = _read(bundle, trust, row, wanted)
                if entry is None:
                    continue
                try:
                    entry = in_form(entry, form, target, device)
                except UnfitError as error:
                    looked.refuse(f"{bundle}: {error}")
                    continue
                is_same = row.identity == identity(wanted)
                looked.hit("bundle", entry.hash, form.note(target), "" if is_same else _OTHER)
                return entry
        # Installed packages may have ops of one name.
        if named is not None and not bundle_paths.is_installed(text):
            _warn_of_another(bundle, named, trust)
    return None


_OTHER = "codegen differs"


def _read(bundle: Path, trust: Trust, row: Row, texts: Mapping[str, str]) -> cache.Entry | None:
    if not is_usable(row, bundle):
        return None
    folder = bundle / "programs" / row.program
    _require(trust, folder, *children(folder))
    try:
        entry = read_entry(folder, trust, row.program)
    except (DamagedError, OSError) as error:
        log.warn_once(
            f"bundle:{row.program}", f"damaged program in a bundle, compiling anew: {error}"
        )
        return None
    # The index is a claim: the program itself says what it is.
    if content_of(entry.key.fields) == content_of(texts) and entry.manifest["format"] == CALL_ABI:
        return entry
    log.warn_once(f"bundle:{bundle}", f"bundle: {bundle / INDEX} is not that of its programs")
    return None


def _require(trust: Trust, *paths: Path) -> None:
    for path in paths:
        try:
            trust.require(path, path.stat())
        except OSError:
            continue  # the read says what is wrong
        except UntrustedError as error:
            raise _untrusted(error) from None


def _untrusted(error: UntrustedError) -> ArgumentError:
    return ArgumentError(
        f"bundle: {error}, and what a bundle holds is code (TILEOPS_CACHE_TRUST_SHARED=1 allows it)"
    )


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


def _rows_of(bundle: Path, trust: Trust) -> Rows:
    try:
        status = (bundle / "bundle.json").stat()
    except OSError as error:
        log.warn_once(f"bundle:{bundle}", f"bundle: {bundle}: {error.strerror}")
        return {}
    _require(trust, bundle / "bundle.json", bundle / INDEX)
    key = (str(bundle), status.st_ino, status.st_mtime_ns)
    with _reading:
        if key not in _indexes:
            try:
                _indexes[key] = bundle_index.read(bundle, trust)
            except UntrustedError as error:
                raise _untrusted(error) from None
        return _indexes[key]
