"""The index of a bundle's programs: which of them is what, without reading the programs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops import cache, log
from tileops.cache.entry import DamagedError, read_head
from tileops.cache.files import Trust, read_file
from tileops.cache.identity import FIELDS, identity
from tileops.cache.key import canonical
from tileops.jit.record import CALL_ABI

INDEX = "index.json"
FORMAT = 1
_LIMIT = 64 << 20  # bytes
_CONTENT = tuple(name for name in FIELDS if name != "codegen")


@dataclass(frozen=True)
class Row:
    """One program: its folder, its identity, and the runtime that its record is for."""

    program: str
    identity: str
    call_abi: int


# Rows by the digest of what programs are, whoever made their code.
Rows = Mapping[str, tuple[Row, ...]]


def content_of(texts: Mapping[str, str]) -> str:
    """SHA-256 of what a program is, whatever generator and compiler made its code.

    ``texts`` are the fields of its key.
    """
    return hashlib.sha256(canonical({name: texts[name] for name in _CONTENT}).encode()).hexdigest()


def described(entries: Iterable[cache.Entry]) -> dict[str, Any]:
    """The content of the index of a bundle with these programs."""
    programs = {
        entry.hash: {
            "call_abi": entry.manifest["format"],
            "content": content_of(entry.key.fields),
            "identity": entry.identity,
        }
        for entry in entries
    }
    return {"format": FORMAT, "programs": dict(sorted(programs.items()))}


def read(bundle: Path, trust: Trust) -> Rows:
    """The rows of a bundle; of an older one without an index, from its programs' manifests.

    What cannot be read is left out, with one warning. UntrustedError where ``trust`` refuses.
    """
    try:
        rows = _rows_in(read_file(bundle / INDEX, limit=_LIMIT, trust=trust))
    except FileNotFoundError:
        rows = _rows_of_programs(bundle / "programs", trust)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        log.warn_once(f"bundle:{bundle / INDEX}", f"bundle: {bundle / INDEX}: {error!s:.200}")
        rows = _rows_of_programs(bundle / "programs", trust)
    found: dict[str, tuple[Row, ...]] = {}
    for content, row in rows:
        found[content] = (*found.get(content, ()), row)
    return found


def _rows_in(text: bytes) -> list[tuple[str, Row]]:
    document = json.loads(text)
    if document["format"] != FORMAT:
        raise ValueError(f"expected format {FORMAT}, got {document['format']!r:.20}")
    return [
        (str(fact["content"]), Row(program, str(fact["identity"]), int(fact["call_abi"])))
        for program, fact in document["programs"].items()
    ]


def _rows_of_programs(programs: Path, trust: Trust) -> list[tuple[str, Row]]:
    rows: list[tuple[str, Row]] = []
    try:
        folders = sorted(programs.iterdir())
    except OSError as error:
        log.warn_once(f"bundle:{programs}", f"bundle: {programs}: {error.strerror}")
        return rows
    for folder in folders:
        for path in (folder, *sorted(folder.iterdir())):
            trust.require(path, path.stat())
        try:
            key, manifest = read_head(folder, trust)
        except (DamagedError, OSError) as error:
            log.warn_once(f"bundle:{folder}", f"damaged program in a bundle: {error}")
            continue
        row = Row(folder.name, identity(key.fields), manifest.get("format", 0))
        rows.append((content_of(key.fields), row))
    return rows


def is_usable(row: Row, bundle: Path) -> bool:
    """Whether this version of tileops can run the program; one warning if not."""
    if row.call_abi == CALL_ABI:
        return True
    log.warn_once(
        f"bundle:{bundle}",
        f"bundle: {bundle} was written for calls of form {row.call_abi}, this version of tileops "
        f"has form {CALL_ABI}; write it anew with tileops.bundle",
    )
    return False
