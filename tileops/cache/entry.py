"""One cache entry: its files, its manifest, and the checks before any of it is used."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops import forks
from tileops.cache.files import Trust, UntrustedError, read_file, sync_directory, write_file
from tileops.cache.identity import identity
from tileops.cache.key import FIELDS, Key, canonical
from tileops.errors import InternalError

FORMAT = 1  # of the members, which the reader of bundles knows too
MANIFEST = "manifest.json"
PROGRAM = "program.txt"
OPTIONS = "options.txt"
# Suffixes of intermediate stages: a person may want to read them, nothing needs them.
STAGES = frozenset({"ttir", "glir", "ttgir", "llir", "ptx", "amdgcn"})
# Suffixes of what is loaded and run.
IMAGES = frozenset({"cubin", "hsaco", "so"})
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)?")
_UNSEALED = '\n "digest": "",\n'
_SEAL = re.compile(rb'\n "digest": "([0-9a-f]{64})",\n')
_NAME_LIMIT = 200  # bytes; a file system takes 255
_MANIFEST_LIMIT = 64 << 20  # bytes; a manifest of a hundred launches has under 1 MiB
# What reading content of other types than expected can raise. ArithmeticError: int(1e999).
_WRONG_CONTENT = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


# Missing, a link (ELOOP), a socket (ENXIO), a file where a folder was.
_DAMAGE = (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.ENOTDIR)


class DamagedError(Exception):
    """An entry whose files are not those that its writer published."""


@dataclass(frozen=True)
class Entry:
    """A compiled program as bytes. ``path`` is its folder, or None (in memory only).

    ``manifest`` is what the compiler said of it, plain JSON values; ``files`` maps names in the
    folder (``launch0.cubin``) to verified contents, ``links`` further names to those of files.
    """

    key: Key
    path: Path | None
    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]
    links: Mapping[str, str]

    @property
    def hash(self) -> str:
        return self.key.hash()

    @forks.ComputedOnce
    def identity(self) -> str:
        """What the program is, whatever compiler made it: see ``cache.identity``."""
        return identity(self.key.fields)

    def text(self, name: str) -> str:
        """The file ``name`` as text; KeyError if the entry has no such file."""
        return self.files[name].decode("utf-8")

    def is_on_disk(self) -> bool:
        """True if its folder still has all its files; what they hold is not read again."""
        path = self.path
        return path is not None and all(
            os.path.lexists(path / name) for name in (MANIFEST, *self.files)
        )


@dataclass(frozen=True)
class Built:
    """What a compile gives to the store: files, a JSON manifest, and links (name to target).

    ``required`` names the files that loading needs (None: all); a user may not keep the others.
    """

    files: Mapping[str, bytes]
    manifest: Mapping[str, Any]
    links: Mapping[str, str] | None = None
    required: frozenset[str] | None = None


def new_entry(key: Key, built: Built, keep: tuple[str, ...]) -> Entry:
    """The entry that ``built`` makes under ``key``; ``keep`` chooses stages (see ``Settings``).

    InternalError for a bad name or a manifest that is not plain JSON.
    """
    files = {
        name: data
        for name, data in built.files.items()
        if built.required is None or name in built.required or _is_kept(name, keep)
    }
    options = "".join(f"{name}: {key.fields[name]}\n" for name in FIELDS if name != "ir")
    files |= {PROGRAM: key.fields["ir"].encode(), OPTIONS: options.encode()}
    for name in (*files, *(built.links or {})):
        if not is_name(name) or name == MANIFEST:
            raise InternalError(f"cache entry: {name!r} cannot be the name of a file")
    links = {name: file for name, file in (built.links or {}).items() if file in files}
    # Through text and back, so that an entry is the same whether it was built here or read.
    return Entry(key, None, json.loads(canonical(dict(built.manifest))), files, links)


def _is_kept(name: str, keep: tuple[str, ...]) -> bool:
    suffix = name.rpartition(".")[2]
    return "all" in keep or suffix in keep or suffix not in STAGES


def write_entry(folder: Path, entry: Entry, *, durable: bool = True) -> None:
    """Write ``entry`` into the new ``folder``, manifest last. OSError.

    With ``durable`` it waits for the disk. Without, a power failure may damage the entry: readers
    notice, and get it where it came from.
    """
    os.mkdir(folder, 0o755)  # noqa: PTH102
    folders = sorted({name.rpartition("/")[0] for name in entry.files if "/" in name})
    for name in folders:
        os.mkdir(folder / name, 0o755)  # noqa: PTH102
    for name, data in sorted(entry.files.items()):
        write_file(folder / name, data, durable=durable)
    for name, target in sorted(entry.links.items()):
        os.symlink(target, folder / name)  # noqa: PTH211
    content = {
        "format": FORMAT,
        "hash": entry.hash,
        "key": {n: text for n, text in entry.key.fields.items() if n != "ir"},  # in program.txt
        "files": {name: fact_of(data) for name, data in entry.files.items()},
        "links": dict(entry.links),
        "manifest": dict(entry.manifest),
    }
    write_file(folder / MANIFEST, sealed(content).encode(), durable=durable)
    for name in (*folders, "") if durable else ():
        sync_directory(folder / name)


def sealed(content: Mapping[str, Any]) -> str:
    """The text of a manifest, with the digest of that text as the value of ``digest``."""
    text = json.dumps({**content, "digest": ""}, indent=1, sort_keys=True) + "\n"
    head, tail = text.split(_UNSEALED)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return head + _UNSEALED[:-3] + digest + _UNSEALED[-3:] + tail


def _is_sealed(text: bytes) -> bool:
    # Compared as bytes: rendering the content again would cost more than all the rest of a read. A
    # line with one blank in front is the outermost object's, and texts hold no line breaks.
    found = _SEAL.search(text)
    if found is None:
        return False
    plain = text[: found.start(1)] + text[found.end(1) :]
    return hashlib.sha256(plain).hexdigest().encode() == found[1]


def fact_of(data: bytes) -> dict[str, object]:
    """Size and SHA-256 of a file, as an index of files holds them."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def read_entry(folder: Path, trust: Trust, expected_hash: str) -> Entry:
    """Read and verify the entry in ``folder``: every file's size and SHA-256, and the key's hash.

    FileNotFoundError if there is no entry, DamagedError if something in it is not what was
    published, OSError if it could not be read now.
    """
    status = os.lstat(folder)
    with _damage_explained(folder):
        if not stat.S_ISDIR(status.st_mode):
            raise DamagedError(f"{folder} is not a folder")
        trust.require(folder, status)
        content = _read_manifest(folder, trust)
        files = {
            name: read_verified(f"{folder}/{name}", fact, trust)
            for name, fact in content["files"].items()
        }
        _verify_links(folder, content["links"], content["files"])
        key = _key(content, files[PROGRAM])
    if key.hash() != expected_hash or content["hash"] != expected_hash:
        raise DamagedError(f"{folder} holds the entry {key.hash()}")
    return Entry(key, folder, content["manifest"], files, content["links"])


def problem_of(folder: Path, trust: Trust) -> str | None:
    """What is wrong with the entry in ``folder``, whose name is its hash; None if it is whole."""
    try:
        read_entry(folder, trust, folder.name)
    except (DamagedError, OSError) as error:
        return str(error)
    return None


def read_head(folder: Path, trust: Trust) -> tuple[Key, dict[str, Any]]:
    """Key and manifest of the entry in ``folder``, its other files unread; errors as read_entry."""
    with _damage_explained(folder):
        content = _read_manifest(folder, trust)
        text = read_verified(f"{folder}/{PROGRAM}", content["files"][PROGRAM], trust)
        return _key(content, text), content["manifest"]


@contextmanager
def _damage_explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except UntrustedError as error:
        raise DamagedError(str(error)) from None
    except OSError as error:
        if error.errno not in _DAMAGE:
            raise  # such as EIO, EMFILE, ESTALE, EACCES: it could not be read now
        raise DamagedError(f"{error.filename}: {error.strerror}") from None
    except (InternalError, *_WRONG_CONTENT) as error:
        raise DamagedError(f"{folder}: {type(error).__name__}: {error!s:.200}") from None


def _key(content: Mapping[str, Any], program: bytes) -> Key:
    key = Key({**content["key"], "ir": program.decode("utf-8")})
    key.hash()  # kept; a text that has no bytes in UTF-8 is found here
    return key


def _read_manifest(folder: Path, trust: Trust) -> dict[str, Any]:
    try:
        text = read_file(folder / MANIFEST, limit=_MANIFEST_LIMIT, trust=trust)
    except FileNotFoundError:
        # The folder is there (its status was read), so this is not a plain miss.
        raise DamagedError(f"{folder} has no {MANIFEST}") from None
    if not _is_sealed(text):
        raise DamagedError(f"{folder / MANIFEST} is not what was written")
    content = json.loads(text.decode("ascii"))
    if content["format"] != FORMAT:
        raise DamagedError(f"{folder / MANIFEST} has format {content['format']!r:.20}")
    problem = _fault_in(content)
    if problem is not None:
        raise DamagedError(f"{folder / MANIFEST}: {problem}")
    return dict(content)


def _fault_in(content: Mapping[str, Any]) -> str | None:
    """What in a manifest has a wrong form; files and key are compared with it elsewhere."""
    files, links, manifest = content["files"], content["links"], content["manifest"]
    for name, fact in files.items():
        if not is_name(name):
            return f"a file is named {name!r:.99}"
        if type(fact["size"]) is not int or not isinstance(fact["sha256"], str):
            return f"size and sha256 of {name} are {fact['size']!r:.20} and {fact['sha256']!r:.80}"
    for name, target in links.items():
        if not is_name(name) or target not in files:
            return f"a link {name!r:.99} leads to {target!r:.99}"
    if not isinstance(manifest, dict) or not isinstance(manifest.get("name", ""), str):
        return "no object with a name as manifest"
    return None


def is_name(name: str) -> bool:
    """True for what can be the name of a file in an entry: ``launch0.cubin``, ``ir/03_x.txt``."""
    return len(name) <= _NAME_LIMIT and _NAME.fullmatch(name) is not None


def read_verified(path: str, fact: Mapping[str, Any], trust: Trust) -> bytes:
    """The file ``path``; DamagedError unless it has the size and SHA-256 of ``fact``."""
    data = read_file(path, limit=fact["size"], trust=trust)
    if fact_of(data) != fact:
        raise DamagedError(f"{path} is not what was written")
    return data


def _verify_links(folder: Path, links: Mapping[str, str], files: Mapping[str, Any]) -> None:
    for name, target in links.items():
        path = f"{folder}/{name}"
        if os.path.islink(path):  # noqa: PTH114
            is_right = os.readlink(path) == target  # noqa: PTH115
        else:  # a copy of its target, where an entry was copied without links
            is_right = fact_of(read_file(path)) == files[target]
        if not is_right:
            raise DamagedError(f"{path} is not a link to {target}")
