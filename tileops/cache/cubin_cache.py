"""The class CubinCache: a small cache of PTX and cubin under keys that the caller makes.

For code that compiles by itself and wants the guarantees of the cache: thread-safe, memory first,
then disk, verified. Its entries are in the store of compiled programs, because one store has one
limit, one way to be checked, and read-only layers: ``python -m tileops cache`` lists, verifies,
exports and prunes both. A key says which of the two an entry is, so neither takes the other's,
and clearing one leaves the other.
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
from tileops.cache.entry import DamagedError, Entry, fact_of, read_verified
from tileops.cache.key import Key, canonical, key_of
from tileops.cache.store import store

_FORMAT = 1
_FILE = re.compile(r"[0-9a-f]{64}\.(cubin|ptx|json)")
_LIMIT = 1 << 30  # bytes of one file
_CODEGEN = "CubinCache"  # what makes the code, in the keys of the store


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

    def in_store(self) -> Key:
        """The key of its entry in the store of compiled programs."""
        return key_of(
            ir=f"cubin {self.fn_id}\n",
            options=self.template_kwargs,
            target=f"cuda:{self.arch}",
            specialization={"cubin": True, "inputs": self.input_shapes},
            codegen=_CODEGEN,
            toolchain={},
        )


def is_of_cubin_cache(key: Key) -> bool:
    """Whether an entry of the store came from a CubinCache and is no compiled program."""
    return key.fields["codegen"] == _CODEGEN


@dataclass(frozen=True)
class CacheEntry:
    """One compiled kernel: its PTX, its cubin if it was assembled, and plain JSON facts."""

    key: CacheKey
    ptx_source: str
    cubin_bytes: bytes | None
    metadata: dict[str, Any] = field(default_factory=dict)

    def parts(self) -> dict[str, bytes]:
        """The content of its files by suffix."""
        cubin = {} if self.cubin_bytes is None else {"cubin": self.cubin_bytes}
        return {**cubin, "ptx": self.ptx_source.encode()}


class CubinCache:
    """Entries in memory and, with ``enable_disk``, in the store, where the PTX is beside the cubin.

    ``cache_dir`` names a folder of the caller's own instead: it gets ``<hash>.cubin .ptx .json``
    and the commands do not look at it. A fault of the file system is one warning; what is damaged
    is a miss.
    """

    def __init__(self, cache_dir: Path | None = None, enable_disk: bool = True) -> None:
        self._folder = _Folder(Path(cache_dir)) if cache_dir is not None else None
        self._enable_disk = enable_disk
        self._memory: dict[str, CacheEntry] = {}

    @property
    def cache_dir(self) -> Path | None:
        """The folder of the files, None if there is no usable directory."""
        return default_directory() if self._folder is None else self._folder.path

    def get(self, key: CacheKey) -> CacheEntry | None:
        """The entry of ``key`` from memory, then disk; None if there is none."""
        name = key.hash()
        found = self._memory.get(name)
        if found is None and self._enable_disk:
            found = _from_store(key) if self._folder is None else self._folder.read(key, name)
            if found is not None:
                self._memory[name] = found
        return found

    def put(self, entry: CacheEntry) -> None:
        """Keep ``entry`` in memory and on disk; InternalError if its metadata is not plain JSON."""
        facts = canonical(entry.metadata)
        self._memory[entry.key.hash()] = entry
        if not self._enable_disk:
            return
        if self._folder is None:
            _into_store(entry, facts)
        else:
            self._folder.write(entry, facts)

    def clear(self, *, disk: bool = False) -> None:
        """Forget the entries in memory; with ``disk`` remove their files too, and no others."""
        self._memory.clear()
        if not disk or not self._enable_disk:
            return
        if self._folder is None:
            store().remove_all(lambda key: key is not None and is_of_cubin_cache(key))
        else:
            self._folder.clear()


# -- the store of compiled programs ----------------------------------------------------------------
def _from_store(key: CacheKey) -> CacheEntry | None:
    found = store().find(key.in_store())
    return None if found is None else _read_from(found, key)


def _read_from(found: Entry, key: CacheKey) -> CacheEntry:
    metadata = dict(found.manifest["metadata"])
    return CacheEntry(key, found.text("kernel.ptx"), found.files.get("kernel.cubin"), metadata)


def _into_store(entry: CacheEntry, facts: str) -> None:
    key = entry.key.in_store()
    known = store().find(key)
    if known is not None:
        if _read_from(known, entry.key) == entry:
            return
        store().remove(key)  # such as PTX that was not assembled yet; entries do not change
    manifest = {"name": entry.key.fn_id, "metadata": json.loads(facts)}
    store().put(key, {f"kernel.{s}": data for s, data in entry.parts().items()}, manifest)


def default_directory() -> Path | None:
    """Where the entries of the moment are; None if no directory can be used."""
    private = here().private
    return private.programs if private is not None else None


# -- a folder of the caller's ----------------------------------------------------------------------
@dataclass(frozen=True)
class _Folder:
    """Files ``<hash>.cubin``, ``.ptx`` and ``.json``, the last with digests of the others."""

    path: Path

    def read(self, key: CacheKey, name: str) -> CacheEntry | None:
        """The verified entry, or None."""
        folder = self.path
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

    def write(self, entry: CacheEntry, facts: str) -> None:
        """Write the entry, or warn once."""
        try:
            self._write(entry, facts)
        except OSError as error:
            log.warn_once("cache", f"tileops cache: cannot store in {self.path}: {error}")

    def _write(self, entry: CacheEntry, facts: str) -> None:
        files.make_directories(self.path)
        place, name, parts = self._staging(), entry.key.hash(), entry.parts()
        staging.sweep(place)
        content = {
            "format": _FORMAT,
            "hash": name,
            "key": json.loads(canonical(vars(entry.key))),
            "metadata": json.loads(facts),
            "cubin": None,
            **{part: fact_of(data) for part, data in parts.items()},
        }
        # Last: it says that the others are whole.
        parts["json"] = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
        for part, data in parts.items():
            staging.place(place, self.path / f"{name}.{part}", data)

    def clear(self) -> None:
        """Remove the files of entries, and no others."""
        for path in files.children(self.path):
            if _FILE.fullmatch(path.name):
                files.remove(path)
        files.remove(self._staging().state)

    def _staging(self) -> Directory:
        return Directory(self.path, True, files.Trust(shared=False))


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
