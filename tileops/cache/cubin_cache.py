"""The class CubinCache: a small cache of PTX and cubin under keys that the caller makes.

For code that compiles by itself and wants the guarantees of the cache: thread-safe, memory first,
then disk, verified. Programs of tileops do not pass through here.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tileops import log, settings
from tileops.cache import files, staging
from tileops.cache.directory import Directory, here
from tileops.cache.entry import DamagedError, fact_of, read_verified
from tileops.cache.key import canonical

_FOLDER = "cubins"
_FORMAT = 1
_FILE = re.compile(r"[0-9a-f]{64}\.(cubin|ptx|json)")
_LIMIT = 1 << 30  # bytes of one file


@dataclass(frozen=True)
class CacheKey:
    """Identifies one specialisation of a kernel.

    ``fn_id`` is a stable name of the function, ``template_kwargs`` sorted pairs of name and value,
    ``input_shapes`` shape and dtype name of each input, ``arch`` such as ``sm_90a``.
    """

    fn_id: str
    template_kwargs: tuple[tuple[str, Any], ...]
    input_shapes: tuple[tuple[tuple[int, ...], str], ...]
    arch: str

    def hash(self) -> str:
        """SHA-256 of the canonical JSON of the key; InternalError for a value that has none."""
        return hashlib.sha256(canonical(vars(self)).encode()).hexdigest()


@dataclass(frozen=True)
class CacheEntry:
    """One compiled kernel: its PTX, its cubin if it was assembled, and plain JSON facts."""

    key: CacheKey
    ptx_source: str
    cubin_bytes: bytes | None
    metadata: dict[str, Any] = field(default_factory=dict)


class CubinCache:
    """Entries in memory and, with ``enable_disk``, as files ``<hash>.cubin .ptx .json``.

    ``cache_dir`` defaults to ``cubins`` in the cache directory of the moment. A fault of the file
    system is one warning; what is damaged is a miss.
    """

    def __init__(self, cache_dir: Path | None = None, enable_disk: bool = True) -> None:
        self._given = Path(cache_dir) if cache_dir is not None else None
        self._enable_disk = enable_disk
        self._memory: dict[str, CacheEntry] = {}

    @property
    def cache_dir(self) -> Path | None:
        """The folder of the files, None if there is no usable directory."""
        return self._given if self._given is not None else default_directory()

    def get(self, key: CacheKey) -> CacheEntry | None:
        """The entry of ``key`` from memory, then disk; None if there is none."""
        name = key.hash()
        found = self._memory.get(name)
        if found is None and self._enable_disk:
            found = self._read(key, name)
            if found is not None:
                self._memory[name] = found
        return found

    def put(self, entry: CacheEntry) -> None:
        """Keep ``entry`` in memory and on disk; InternalError if its metadata is not plain JSON."""
        name = entry.key.hash()
        facts = canonical(entry.metadata)
        self._memory[name] = entry
        folder = self.cache_dir if self._enable_disk else None
        if folder is None:
            return
        try:
            _write(folder, name, entry, facts)
        except OSError as error:
            log.warn_once("cache", f"tileops cache: cannot store in {folder}: {error}")

    def clear(self, *, disk: bool = False) -> None:
        """Forget the entries in memory; with ``disk`` remove their files too, and no others."""
        self._memory.clear()
        folder = self.cache_dir if disk else None
        if folder is None:
            return
        for path in files.children(folder):
            if _FILE.fullmatch(path.name):
                files.remove(path)
        if self._given is not None:
            files.remove(_staged_in(self._given).state)

    def _read(self, key: CacheKey, name: str) -> CacheEntry | None:
        folder = self.cache_dir
        if folder is None:
            return None
        trust = files.Trust(shared=settings.current().cache_trust_shared)
        try:
            trust.require(folder, folder.stat())
            facts = json.loads(files.read_file(folder / f"{name}.json", limit=_LIMIT, trust=trust))
            if facts["format"] != _FORMAT or facts["hash"] != name:
                return None
            found = {
                part: read_verified(f"{folder / name}.{part}", facts[part], trust)
                for part in ("ptx", "cubin")
                if facts[part] is not None
            }
            ptx = found["ptx"].decode("utf-8")
            return CacheEntry(key, ptx, found.get("cubin"), dict(facts["metadata"]))
        except FileNotFoundError:
            return None
        except (OSError, files.UntrustedError) as error:
            log.warn_once("cache", f"tileops cache: cannot use {folder}: {error}")
        except (DamagedError, ValueError, LookupError, TypeError, RecursionError) as error:
            log.warn_once(f"damaged:{name}", f"damaged cache entry {folder / name}: {error}")
        return None


def _write(folder: Path, name: str, entry: CacheEntry, facts: str) -> None:
    files.make_directories(folder)
    place = _staged_in(folder)
    staging.sweep(place)
    parts = {"cubin": entry.cubin_bytes, "ptx": entry.ptx_source.encode()}
    content = {
        "format": _FORMAT,
        "hash": name,
        "key": json.loads(canonical(vars(entry.key))),
        "metadata": json.loads(facts),
        **{part: None if data is None else fact_of(data) for part, data in parts.items()},
    }
    # Last: it says that the others are whole.
    parts["json"] = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
    for part, data in parts.items():
        if data is not None:
            staging.place(place, folder / f"{name}.{part}", data)


def _staged_in(folder: Path) -> Directory:
    """The directory that stages files for ``folder``: one of the caller's own stages its own."""
    private = here().private
    if private is not None and folder == private.root / _FOLDER:
        return private
    return Directory(folder, True, files.Trust(shared=False))


def default_directory() -> Path | None:
    """``cubins`` in the cache directory of the moment; None if no directory can be used."""
    private = here().private
    return private.root / _FOLDER if private is not None else None


_global = CubinCache()


def get_global_cache() -> CubinCache:
    """The cubin cache of this process."""
    return _global


def set_global_cache(cache: CubinCache) -> None:
    """Use ``cache`` as the cubin cache of this process."""
    global _global
    _global = cache


def __getattr__(name: str) -> object:
    # Asked for, not made at import: it depends on the settings of the moment.
    if name == "DEFAULT_CACHE_DIR":
        return default_directory()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
