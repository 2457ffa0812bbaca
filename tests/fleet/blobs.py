"""Keys, entries and blobs for the tests of the fleet cache, and mutations of blobs."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path

from tests.cache import samples
from tileops.cache import envelope, keys
from tileops.cache.entry import Entry, new_entry
from tileops.cache.keys import Keyring, SigningKey

PROVENANCE = {"tileops": "0.1.0"}
SECRET = base64.b64encode(bytes(range(32))).decode()
HMAC_FILE = {"keys": [{"kid": "team", "alg": "hmac-sha256", "key": SECRET}]}


def entry(number: int = 0, size: int = 3000) -> Entry:
    """What travels of the sample program ``number``."""
    return envelope.travelling(
        new_entry(samples.key(number), samples.built(number, size), ("all",))
    )


def hmac_ring(**more: object) -> Keyring:
    return keys.parse({**HMAC_FILE, **more})


def signer(ring: Keyring, kid: str | None = None) -> SigningKey:
    found = ring.signer(kid)
    assert found is not None
    return found


def blob(number: int = 0, ring: Keyring | None = None, size: int = 3000) -> bytes:
    return envelope.pack(entry(number, size), signer(ring or hmac_ring()), PROVENANCE)


def keys_file(folder: Path, content: object = None, name: str = "keys.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content or HMAC_FILE))
    path.chmod(0o600)
    return path


# -- mutations -----------------------------------------------------------------------------------
def _flip(data: bytearray, other: bytes, pick: random.Random) -> bytearray:
    data[pick.randrange(len(data))] ^= 1 << pick.randrange(8)
    return data


def _overwrite(data: bytearray, other: bytes, pick: random.Random) -> bytearray:
    start = pick.randrange(len(data))
    data[start : start + pick.randrange(1, 64)] = pick.randbytes(pick.randrange(64))
    return data


def _cut(data: bytearray, other: bytes, pick: random.Random) -> bytearray:
    return data[: pick.randrange(len(data))]


def _extend(data: bytearray, other: bytes, pick: random.Random) -> bytearray:
    return data + bytes(pick.choice((1, 512, 1024)))


def _move_block(data: bytearray, other: bytes, pick: random.Random) -> bytearray:
    start, to = (512 * pick.randrange(len(data) // 512 + 1) for _ in "ab")
    block = data[start : start + 512]
    del data[start : start + 512]
    data[to:to] = block
    return data


def _splice(data: bytearray, other: bytes, pick: random.Random) -> bytearray:
    # The head of this blob, signature included, with the tail of another one that is well signed.
    at = 512 * pick.randrange(min(len(data), len(other)) // 512 + 1)
    return data[:at] + other[at:]


def _word(data: bytearray, other: bytes, pick: random.Random) -> bytearray:
    # Words of the envelope's own text, where a reader could be lenient.
    old, new = pick.choice(
        [(b'":', b'": '), (b'"sig"', b'"SIG"'), (b"==", b"="), (b"A", b"B"), (b"team", b"Team"),
         (b"entry+json", b"alias+json"), (b"0000644", b"0000755"), (b"ustar", b"USTAR"), (b"[{", b"[{},{"),
         (b"}]", b'},{"keyid":"x","sig":""}]'), (b'"payload"', b'"payload":"","payload"')]
    )  # fmt: skip
    return bytearray(bytes(data).replace(old, new, pick.randrange(1, 3)))


MUTATIONS: tuple[Callable[[bytearray, bytes, random.Random], bytearray], ...] = (
    _flip, _overwrite, _cut, _extend, _move_block, _splice, _word,
)  # fmt: skip


def mutated(data: bytes, other: bytes, pick: random.Random) -> bytes:
    """``data`` with one to three mutations."""
    found = bytearray(data)
    for _ in range(pick.randrange(1, 4)):
        if found:
            found = pick.choice(MUTATIONS)(found, other, pick)
    return bytes(found)
