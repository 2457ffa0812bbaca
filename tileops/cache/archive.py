"""Export and import of entries: one tar file, verified on both sides."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tileops.cache import aliases, files, staging, tar_reader, usage
from tileops.cache.directory import Directory
from tileops.cache.entry import MANIFEST, DamagedError, Entry, is_name, read_entry
from tileops.errors import CacheError

_MEMBER_LIMIT = 256 << 20  # bytes; a kernel has some megabytes
_MOST_REFUSED = 1000
_HASH = re.compile(r"[0-9a-f]{64}")


def export(
    folders: Iterable[Path], trust: files.Trust, file: Path, *, skip_damaged: bool = False
) -> tuple[int, list[str]]:
    """Write the entries in ``folders`` into the new ``file``: their number, and what was left out.

    The same entries give the same bytes. With ``skip_damaged`` a damaged entry is left out and one
    that vanishes meanwhile is no fault; else they are a CacheError. OSError if the file exists or
    cannot be written; half an archive is never left.
    """
    if os.path.lexists(file):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file))
    half = file.with_name(f".export.{os.urandom(6).hex()}")
    count = 0
    left_out: list[str] = []
    try:
        with tarfile.open(half, mode="x") as archive:
            for folder in sorted(set(folders), key=lambda path: path.name):
                try:
                    members = _members(folder, trust)
                except (DamagedError, files.UntrustedError, OSError) as error:
                    if not skip_damaged:
                        raise CacheError(str(error)) from None
                    if not isinstance(error, FileNotFoundError):
                        left_out.append(str(error))
                    continue
                for member, data in members:
                    archive.addfile(member, io.BytesIO(data))
                count += 1
        try:
            os.link(half, file)  # fails if somebody made the file meanwhile
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            half.rename(file)
    finally:
        files.remove(half)
    return count, left_out


def _members(folder: Path, trust: files.Trust) -> list[tuple[tarfile.TarInfo, bytes]]:
    entry = read_entry(folder, trust, folder.name)
    contents = {**entry.files, MANIFEST: files.read_file(folder / MANIFEST, trust=trust)}
    members = []
    for name in sorted({*contents, *entry.links}):
        member = tarfile.TarInfo(f"programs/{folder.name}/{name}")
        member.mode = 0o644
        data = contents.get(name, b"")
        if name in contents:
            member.size = len(data)
        else:
            member.type, member.linkname = tarfile.SYMTYPE, entry.links[name]
        members.append((member, data))
    return members


def load(directory: Directory, file: Path, limit: int | None = None) -> tuple[int, list[str]]:
    """Publish the entries of ``file``; returns how many are new, and what was refused and why.

    Entries are code: load only files whose maker you trust. Names and links that leave the entry's
    folder, and files that do not match a manifest, are refused. Nothing is published before the
    whole archive was read. CacheError if ``file`` is not an archive, unpacks to more than ``limit``
    bytes, or does not fit in the directory; OSError if it cannot be opened.
    """
    with contextlib.closing(file.open("rb")) as stream:
        stage = None
        try:
            stage = staging.fresh(directory, "import")
            files.make_directories(stage)
            files.make_directories(directory.programs)
            refused = _unpack(stage, limit, stream, file)
            folders = sorted(path for path in stage.iterdir() if path.is_dir())
            added = sum(_publish(folder, directory, refused) for folder in folders)
            files.sync_directory(directory.programs)
            usage.restart_size(directory, sum(e.size for e in usage.stored_entries(directory)))
            return added, refused
        except OSError as error:
            raise CacheError(f"cannot import into {directory.root}: {error}") from None
        finally:
            if stage is not None:
                files.remove(stage)


def _unpack(stage: Path, limit: int | None, stream: io.BufferedReader, file: Path) -> list[str]:
    """Write the members that can be files of entries into ``stage``; what was refused, and why."""
    refused: list[str] = []
    names: set[str] = set()
    most = sys.maxsize if limit is None else limit
    limit_name = "the cache's limit of {} bytes (TILEOPS_CACHE_LIMIT)"
    source = tar_reader.Source(file, "archive of cache entries", most, limit_name)
    for member in tar_reader.members(stream, source):
        # Where a file system does not tell them apart, the second would replace the first.
        name = member.info.name.casefold()
        problem = _problem_of(member)
        if problem is None and name in names:
            problem = "the archive has a file of that name already"
        if problem is None:
            names.add(name)
            problem = _extract(member, stage)
        if problem is not None:
            refused.append(f"{member.info.name!r:.200}: {problem}")
        if len(refused) > _MOST_REFUSED:
            raise CacheError(f"{file} holds other things than cache entries: {refused[0]}")
    return refused


def _problem_of(member: tar_reader.Member) -> str | None:
    info = member.info
    parts = PurePosixPath(info.name).parts
    # A name is one that an entry's files have: it leads nowhere else, and no link is followed,
    # whatever an earlier member made.
    is_of_entry = (
        3 <= len(parts) <= 4
        and parts[0] == "programs"
        and _HASH.fullmatch(parts[1])
        and is_name("/".join(parts[2:]))
    )
    if not is_of_entry or not (member.is_plain or info.issym()):
        return "not a file of an entry"
    if member.is_plain and info.size > _MEMBER_LIMIT:
        return f"it has {info.size} bytes, more than {_MEMBER_LIMIT}"
    if info.issym() and not is_name(info.linkname):
        return f"a link to {info.linkname!r:.200}"
    return None


def _extract(member: tar_reader.Member, stage: Path) -> str | None:
    path = stage.joinpath(*PurePosixPath(member.info.name).parts[1:])
    between = [parent for parent in path.parents if parent.is_relative_to(stage)]
    if os.path.lexists(path) or any(p.is_symlink() or p.is_file() for p in between):
        return "below a file or a link"
    files.make_directories(path.parent)
    if member.is_plain:
        files.write_file(path, member.chunks())
    else:
        path.symlink_to(member.info.linkname)
    return None


def _publish(folder: Path, directory: Directory, refused: list[str]) -> int:
    try:
        entry = read_entry(folder, directory.trust, folder.name)
    except (DamagedError, OSError) as error:
        refused.append(str(error))
        return 0
    refused += [f"programs/{folder.name}/{name}: in no manifest" for name in _prune(folder, entry)]
    for path in (*sorted(path for path in folder.rglob("*") if path.is_dir()), folder):
        files.sync_directory(path)
    is_new = usage.put_in_place(folder, directory, folder.name)
    aliases.add(directory, entry.identity, folder.name)
    return int(is_new)


def _prune(folder: Path, entry: Entry) -> list[str]:
    """Remove what the entry does not name; returns the names."""
    known = {MANIFEST, *entry.files, *entry.links}
    extra = [
        name
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or not path.is_dir())
        and (name := path.relative_to(folder).as_posix()) not in known
    ]
    for name in extra:
        files.remove(folder / name)
        with contextlib.suppress(OSError):
            (folder / name).parent.rmdir()  # if it was the last one there
    return extra
