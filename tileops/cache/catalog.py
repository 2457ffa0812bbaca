"""Answers about the cache: what is there, is it whole, why was it not used."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tileops.cache import scripts, usage
from tileops.cache.directory import Directory, Resolved, here
from tileops.cache.entry import DamagedError, Entry, problem_of, read_entry, read_head
from tileops.cache.key import Key
from tileops.errors import CacheError

# Of an op with very many entries, the newest are compared: an answer must cost less than a compile.
_COMPARED = 32


@dataclass(frozen=True)
class Item:
    """One entry in a listing. ``problem`` is None if manifest and key could be read."""

    hash: str
    path: Path
    bytes: int
    used_at: float  # Unix seconds
    writable: bool  # in the private directory, not in a layer
    key: Key | None = None
    manifest: dict[str, Any] | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """Name of the op, empty if unknown."""
        return str((self.manifest or {}).get("name", ""))

    @property
    def target(self) -> str:
        """Full target, such as ``cuda:sm_90a``; empty if unknown."""
        return self.key.fields["target"] if self.key is not None else ""


def items(where: Resolved | None = None) -> list[Item]:
    """All entries of the private directory and the layers, most recently used first."""
    found = []
    for directory in where or here():
        for stored in usage.stored_entries(directory):
            key, manifest, problem = None, None, None
            try:
                key, manifest = read_head(stored.path, directory.trust)
            except (DamagedError, OSError) as error:
                problem = str(error)
            found.append(
                Item(
                    stored.path.name, stored.path, stored.size, stored.used_at,
                    directory.writable, key, manifest, problem,
                )
            )  # fmt: skip
    return sorted(found, key=lambda item: -item.used_at)


def find(prefix: str) -> Entry:
    """The first whole entry whose hash begins with ``prefix``.

    CacheError if there is none, several hashes begin so, or the entry is damaged.
    """
    if not prefix or not set(prefix) <= set("0123456789abcdef"):
        raise CacheError(f"{prefix!r} is not a hash: expected its first hexadecimal digits")
    matches: dict[str, list[tuple[Path, Directory]]] = {}
    for directory in here():
        for path in sorted(directory.programs.glob(f"{prefix}*")):
            matches.setdefault(path.name, []).append((path, directory))
    if len(matches) != 1:
        names = ", ".join(name[:16] for name in sorted(matches)[:8])
        count = f"{len(matches)} entries: {names}" if matches else "no entry"
        raise CacheError(f"{prefix}: {count}")
    problems = []
    for path, directory in next(iter(matches.values())):
        try:
            return read_entry(path, directory.trust, path.name)
        except (DamagedError, OSError) as error:
            problems.append(str(error))
    raise CacheError("; ".join(problems))


def verify() -> list[tuple[Path, str | None]]:
    """Each entry's folder, with what is wrong with it or None."""
    return [
        (stored.path, problem_of(stored.path, directory.trust))
        for directory in here()
        for stored in usage.stored_entries(directory)
    ]


def nearest(key: Key, among: Iterable[Item]) -> Item | None:
    """The entry that differs from ``key`` in the fewest fields; the same IR counts most."""
    others = [(item.key, item) for item in among if item.key is not None and item.key != key]
    found = min(others, key=lambda other: _distance(key, other[0]), default=None)
    return None if found is None else found[1]


def _distance(key: Key, other: Key) -> tuple[bool, int]:
    names = key.differences(other)
    return "ir" in names, len(names)


def why_missed(key: Key, name: str) -> str:
    """In a few words, why op ``name`` has no entry for ``key``: for the log line of a compile."""
    private = here().private
    if private is None:
        return "no cache directory"
    hashes = [row["program"] for row in scripts.rows_of(private, name)]
    others = []
    for entry_hash in dict.fromkeys(hashes[::-1][:_COMPARED]):
        with suppress(DamagedError, OSError):
            others.append(read_head(private.programs / entry_hash, private.trust)[0])
    found = min((o for o in others if o != key), key=partial(_distance, key), default=None)
    if found is None:
        return "first compile of this op"
    names = key.differences(found)
    return "changed: " + ", ".join([*names, *changed_parts(key, found)])


# A line of a program's text for each function or file that a foreign kernel is made of.
_PART = "  made of "


def changed_parts(key: Key, other: Key) -> list[str]:
    """The functions, values and headers of foreign kernels that two keys' programs have otherwise.

    What a kernel calls, reads or includes at any depth is a part of its own.
    """
    now, then = (
        dict(
            line.removeprefix(_PART).rsplit(" ", 1)
            for line in k.fields["ir"].splitlines()
            if line.startswith(_PART)
        )
        for k in (key, other)
    )
    return [name for name in {**then, **now} if now.get(name) != then.get(name)]
