"""Owns carrying entries to another machine: one tar file, verified on both sides."""

from __future__ import annotations

import io
import lzma
import os
import re
import secrets
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tileops.cache import usage
from tileops.cache.directory import Directory
from tileops.cache.entry import DamagedError, read_entry
from tileops.cache.files import make_directories, remove, sync_directory, write_file
from tileops.errors import CacheError

_MEMBER_LIMIT = 1 << 30  # bytes
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")


def export(directory: Directory, hashes: Iterable[str], file: Path) -> int:
    """Write the entries ``hashes`` into the new tar file ``file``; returns their number.

    The same entries give the same bytes. Raises CacheError for a damaged entry, OSError if the file
    exists or cannot be written.
    """
    folders = []
    for entry_hash in sorted(hashes):
        folder = directory.programs / entry_hash
        try:
            read_entry(folder, directory.trust, entry_hash)
        except (DamagedError, OSError) as error:
            raise CacheError(str(error)) from None
        folders.append(folder)
    with file.open("xb") as stream:
        try:
            with tarfile.open(fileobj=stream, mode="w") as archive:
                for folder in folders:
                    for path in sorted(folder.rglob("*")):
                        inner = path.relative_to(folder).as_posix()
                        _add(archive, path, f"programs/{folder.name}/{inner}")
        except OSError:
            remove(file)  # half an archive helps nobody
            raise
    return len(folders)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    if path.is_symlink():
        member.type = tarfile.SYMTYPE
        member.linkname = str(path.readlink())
        archive.addfile(member)
    elif path.is_file():
        data = path.read_bytes()
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))


def load(directory: Directory, file: Path) -> tuple[int, list[str]]:
    """Publish the entries of ``file``; returns how many are new, and what was refused and why.

    Entries are code: load only files whose maker you trust. Names that leave the entry's folder,
    links to elsewhere and contents that do not match their manifest are refused. Raises CacheError
    if ``file`` is no archive, OSError if it cannot be read or the directory cannot be written.
    """
    stage = directory.staging / f"import.{secrets.token_hex(6)}"
    make_directories(stage)
    make_directories(directory.programs)
    try:
        refused = _unpack(file, stage)
        added = 0
        for folder in sorted(path for path in stage.iterdir() if path.is_dir()):
            try:
                read_entry(folder, directory.trust, folder.name)
            except (DamagedError, OSError) as error:
                refused.append(str(error))
                continue
            added += _publish(folder, directory)
        sync_directory(directory.programs)
        usage.Growth(directory).restart(sum(e.size for e in usage.stored_entries(directory)))
        return added, refused
    finally:
        remove(stage)


def _unpack(file: Path, stage: Path) -> list[str]:
    refused = []
    try:
        with tarfile.open(file, mode="r:*") as archive:
            for member in archive:
                if not _extract(archive, member, stage):
                    refused.append(f"{member.name!r}: not a file of an entry")
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).partition("\n")[0]
        raise CacheError(f"{file} is no archive of cache entries: {reason}") from None
    return refused


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, stage: Path) -> bool:
    parts = PurePosixPath(member.name).parts
    if not 3 <= len(parts) <= 4 or parts[0] != "programs":
        return False
    # A name is one that an entry's files have: it leads nowhere else, and no link is walked
    # through, whatever an earlier member made.
    if not all(_PLAIN.fullmatch(part) for part in (*parts, member.linkname or "none")):
        return False
    path = stage.joinpath(*parts[1:])
    if os.path.lexists(path) or any(p.is_symlink() or p.is_file() for p in _between(path, stage)):
        return False
    make_directories(path.parent)
    if member.issym():
        path.symlink_to(member.linkname)
        return True
    source = archive.extractfile(member) if member.isreg() else None
    if source is None or member.size > _MEMBER_LIMIT:
        return False
    write_file(path, source.read())
    return True


def _between(path: Path, stage: Path) -> list[Path]:
    return [parent for parent in path.parents if parent.is_relative_to(stage)]


def _publish(folder: Path, directory: Directory) -> int:
    final = directory.programs / folder.name
    try:
        read_entry(final, directory.trust, folder.name)
        return 0
    except FileNotFoundError:
        pass_on = True
    except (DamagedError, OSError):
        pass_on = usage.discard(directory, final)
    if pass_on:
        folder.rename(final)
    return int(pass_on)
