"""Owns carrying tunings to another machine: one tar file of JSON, checked before it counts."""

from __future__ import annotations

import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileops.autotuner import database
from tileops.cache.directory import Directory
from tileops.cache.files import UntrustedError, make_directories, read_file, remove
from tileops.errors import CacheError

# A tuning is four small files; a larger one is none of ours.
_MEMBER_LIMIT = 64 << 20
_TOTAL_LIMIT = 1 << 30
_NAME = re.compile(
    r"(?!\.{1,2}/)[A-Za-z0-9_.\-]{1,200}/[0-9a-f]{8,64}/tuning/[0-9a-f]{64}/([a-z_]+\.jsonl?)"
)


def export(folders: Sequence[Path], root: Path, file: Path) -> list[str]:
    """Write the tunings in ``folders`` below ``root`` into ``file``; returns what was left out.

    A tuning of which a file is not a plain one is left out whole. OSError if ``file`` cannot be
    written; what stood there then still does.
    """
    staging = file.with_name(f".{file.name}.{os.getpid()}")
    left_out: list[str] = []
    try:
        with tarfile.open(staging, "x:gz") as archive:
            for folder in folders:
                try:
                    members = list(_members(folder))
                except (OSError, UntrustedError) as error:
                    left_out.append(str(error))
                    continue
                for path, data in members:
                    _add(archive, path.relative_to(root).as_posix(), data)
        staging.replace(file)
    except OSError:
        remove(staging)
        raise
    return left_out


def _members(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for name in sorted(database.FILES):
        path = folder / name
        if os.path.lexists(path):
            yield path, read_file(path, limit=_MEMBER_LIMIT)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    import io

    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = 0o644
    archive.addfile(member, io.BytesIO(data))


def load(directory: Directory, file: Path) -> int:
    """Add the tunings of ``file``; returns their number. Nothing is written unless all are sound.

    Measurements are added to those that are there; a winner is taken only where there is none.
    CacheError if ``file`` is no export of tunings, OSError if the directory cannot be written.
    """
    members = _read(file)
    changed = set()
    for name, data in members.items():
        place = directory.scripts / name
        make_directories(place.parent)
        if place.name == database.ROWS:
            database.merge_rows(place.parent, data)
        elif database.read_json(place) is None:
            database.place(directory, place, data)
        changed.add(place.parent)
    for script in {folder.parent.parent for folder in changed}:
        database.write_table(directory, script)
    return len(changed)


def _read(file: Path) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                _require_sound(file, member, members)
                total += member.size
                if total > _TOTAL_LIMIT:
                    raise CacheError(f"{file}: more than {_TOTAL_LIMIT} bytes of tunings")
                source = archive.extractfile(member)
                assert source is not None  # of a plain file
                members[member.name] = source.read()
    # ValueError: what the module makes of numbers in a header that are none.
    except (OSError, tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise CacheError(f"{file} cannot be read as exported tunings: {error}") from error
    return members


def _require_sound(file: Path, member: tarfile.TarInfo, known: dict[str, bytes]) -> None:
    match = _NAME.fullmatch(member.name)
    if match is None or match[1] not in database.FILES or not member.isreg():
        raise CacheError(f"{file}: {member.name!r} is no part of a tuning")
    if not 0 <= member.size <= _MEMBER_LIMIT:
        raise CacheError(f"{file}: {member.name!r} has {member.size} bytes")
    if member.name in known:
        raise CacheError(f"{file}: {member.name!r} is in it twice")
