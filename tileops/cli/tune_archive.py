"""Tunings for another machine: one tar file of JSON, checked before anything of it counts."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from tileops.autotuner import database
from tileops.cache import staging, tar_reader
from tileops.cache.directory import Directory
from tileops.cache.files import UntrustedError, make_directories, read_file, remove
from tileops.errors import CacheError

# A tuning is four small files; a larger one is not ours.
_MEMBER_LIMIT = 32 << 20
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
                    member = tarfile.TarInfo(path.relative_to(root).as_posix())
                    member.size, member.mode = len(data), 0o644
                    archive.addfile(member, io.BytesIO(data))
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


def load(directory: Directory, file: Path) -> int:
    """Add the tunings of ``file``; returns their number. Nothing is written unless all are sound.

    Measurements are added to those that are there; a winner is taken only where there is none.
    CacheError if ``file`` is not an export of tunings, OSError if the directory cannot be written.
    """
    changed = set()
    with file.open("rb") as stream:
        for _ in _sound_members(stream, file):
            pass
        # Again and not kept: an archive may unpack to more than this process has memory.
        stream.seek(0)
        for name, data in _sound_members(stream, file):
            place = directory.scripts / name
            make_directories(place.parent)
            if place.name == database.ROWS:
                database.merge_rows(place.parent, data)
            elif database.read_json(place) is None:
                staging.place(directory, place, data)
            changed.add(place.parent)
    for script in {folder.parent.parent for folder in changed}:
        database.write_table(directory, script)
    return len(changed)


def _sound_members(stream: IO[bytes], file: Path) -> Iterator[tuple[str, bytes]]:
    known: set[str] = set()
    source = tar_reader.Source(
        file, "archive of exported tunings", _TOTAL_LIMIT, "{} bytes of tunings"
    )
    for member in tar_reader.members(stream, source):
        name, size = member.info.name, member.info.size
        match = _NAME.fullmatch(name)
        if match is None or match[1] not in database.FILES or not member.is_plain:
            raise CacheError(f"{file}: {name!r:.200} is not part of a tuning")
        if size > _MEMBER_LIMIT:
            raise CacheError(f"{file}: {name!r} has {size} bytes")
        if name in known:
            raise CacheError(f"{file}: {name!r} is in it twice")
        known.add(name)
        yield name, member.read()
