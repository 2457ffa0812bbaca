"""The compiled programs of a process as bytes: the pair of functions beside torch.compiler's."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tileops.cache import envelope
from tileops.cache.entry import DamagedError, Entry
from tileops.cache.envelope import UntrustedEnvelopeError
from tileops.cache.keys import Keyring
from tileops.cache.store import store
from tileops.errors import ArgumentTypeError, CacheError

_FIRST_LINE = b"tileops cache artifacts 1\n"
_ANYBODY = Keyring(unsigned=True)


def save_cache_artifacts() -> bytes:
    """The compiled programs that this process has used, for ``load_cache_artifacts`` elsewhere.

    As ``torch.compiler.save_cache_artifacts``, whose bytes hold none of them. The same programs
    give the same bytes.
    """
    entries = sorted(store().used(), key=lambda entry: entry.hash)
    blobs = [envelope.pack(envelope.travelling(entry), None, {}) for entry in entries]
    sizes = [[e.hash, len(blob)] for e, blob in zip(entries, blobs, strict=True)]
    return b"".join([_FIRST_LINE, json.dumps(sizes).encode() + b"\n", *blobs])


def load_cache_artifacts(artifacts: bytes) -> int:
    """Keep the programs that ``save_cache_artifacts`` gave, in the cache too; their number.

    They are code: load only bytes whose maker you trust. A key covers the code generators and the
    compiler, so programs of another release are of no use and do no harm. CacheError, and nothing
    is kept, if the bytes are not whole.
    """
    if not isinstance(artifacts, bytes | bytearray | memoryview):
        raise ArgumentTypeError(
            "tileops.load_cache_artifacts: expected artifacts to be the bytes that "
            f"tileops.save_cache_artifacts gave, got {type(artifacts).__name__}"
        )
    try:
        found = list(_entries(bytes(artifacts)))
    except (DamagedError, UntrustedEnvelopeError, ValueError, TypeError, RecursionError) as error:
        raise CacheError(
            "tileops.load_cache_artifacts: expected the bytes that tileops.save_cache_artifacts "
            f"gave, got {len(artifacts)} other bytes: {error!s:.200}"
        ) from None
    for entry in found:
        store().add(entry)
    return len(found)


def _entries(data: bytes) -> Iterator[Entry]:
    index, _, blobs = data.removeprefix(_FIRST_LINE).partition(b"\n")
    if not data.startswith(_FIRST_LINE):
        raise DamagedError("another beginning")
    start = 0
    for name, size in json.loads(index):
        if not isinstance(name, str) or type(size) is not int or size <= 0:
            raise DamagedError("an index of other things")
        yield envelope.unpack(blobs[start : start + size], name, _ANYBODY)
        start += size
    if start != len(blobs):
        raise DamagedError(f"{len(blobs)} bytes of programs, {start} in the index")
