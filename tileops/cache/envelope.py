"""The signed form in which an entry travels: one blob, bound to the last bit to its signature.

The blob is a tar file whose first member, ``envelope.json``, is a DSSE envelope. Its payload names
key, identity and manifest, and size and SHA-256 of every file; the rest of the blob follows from
them. So a reader checks the signature first, and then that the blob has the one form that the
payload allows: nothing unsigned is unpacked or even parsed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileops.cache.entry import (
    FORMAT,
    IMAGES,
    OPTIONS,
    PROGRAM,
    DamagedError,
    Entry,
    fact_of,
    is_name,
)
from tileops.cache.identity import identity
from tileops.cache.key import Key, canonical
from tileops.cache.keys import Keyring, SignatureError, SigningKey
from tileops.errors import InternalError

ENVELOPE = "envelope.json"
ENTRY_TYPE = "application/vnd.tileops.entry+json"
ALIAS_TYPE = "application/vnd.tileops.alias+json"
LIMIT = 64 << 20  # bytes of a blob; entries with their images have some hundred KiB
ENVELOPE_LIMIT = 8 << 20
ALIAS_LIMIT = 64 << 10
_MOST_FILES = 1000
_BLOCK = tarfile.BLOCKSIZE
_SERVES_LATER = re.compile(r"cuda:sm_[0-9]+")  # targets whose PTX newer GPUs run
_WRONG_CONTENT = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


class UntrustedEnvelopeError(Exception):
    """An envelope that nobody who is trusted here has signed, or one that was revoked."""


@dataclass(frozen=True)
class Alias:
    """A pointer from an identity, which needs no compiler to compute, to an entry's key."""

    identity: str
    key: str
    toolchain: str


def travelling(entry: Entry) -> Entry:
    """The part of an entry that other machines need: images, program, options.

    PTX too, where later GPUs can run it: not that of ``sm_90a`` and its like.
    """
    record = entry.manifest.get("record")
    launches = record.get("launches", []) if isinstance(record, Mapping) else []
    images = {launch.get("image") for launch in launches if isinstance(launch, Mapping)}
    serves_later = _SERVES_LATER.fullmatch(entry.key.fields["target"])
    suffixes = IMAGES | {"ptx"} if serves_later else IMAGES
    files = {
        name: data
        for name, data in entry.files.items()
        if name in (PROGRAM, OPTIONS) or name in images or name.rpartition(".")[2] in suffixes
    }
    links = {name: target for name, target in entry.links.items() if target in files}
    return Entry(entry.key, None, entry.manifest, files, links)


def pack(entry: Entry, signer: SigningKey | None, provenance: Mapping[str, str]) -> bytes:
    """The blob of ``entry``, as whole as it is given; CacheError if the key cannot sign.

    The same entry and key give the same bytes. DamagedError if it is larger than the limits.
    """
    payload = {
        "format": FORMAT,
        "key": entry.hash,
        "identity": identity(entry.key.fields),
        "fields": {n: text for n, text in entry.key.fields.items() if n != "ir"},  # in PROGRAM
        "files": {name: fact_of(data) for name, data in entry.files.items()},
        "links": dict(entry.links),
        "manifest": dict(entry.manifest),
        "provenance": dict(provenance),
    }
    envelope = _sealed(ENTRY_TYPE, payload, signer)
    contents = [(ENVELOPE, envelope)]
    contents += [(f"programs/{entry.hash}/{n}", data) for n, data in sorted(entry.files.items())]
    blob = b"".join(_member(name, data) for name, data in contents) + _END
    if len(blob) > LIMIT or len(envelope) > ENVELOPE_LIMIT or len(contents) > _MOST_FILES:
        raise DamagedError(f"entry {entry.hash[:12]} has {len(blob)} bytes: too large to travel")
    return blob


def unpack(blob: bytes, expected: str, ring: Keyring) -> Entry:
    """The entry in ``blob``, which must be that of the key hash ``expected``.

    UntrustedEnvelopeError if no signature counts or it is another entry's, DamagedError if the blob
    is not what was signed.
    """
    envelope = _first_member(blob)
    content = _opened(envelope, ENTRY_TYPE, ring)
    try:
        if content["format"] != FORMAT:
            raise DamagedError(f"format {content['format']!r:.20}")
        if content["key"] != expected:
            raise UntrustedEnvelopeError("signed for another entry")
        if expected in ring.revoked_entries:
            raise UntrustedEnvelopeError("the entry is revoked")
        files = _files(blob, len(_member(ENVELOPE, envelope)), content["files"], expected)
        key = Key({**content["fields"], "ir": files[PROGRAM].decode("utf-8")})
        links = _links(content["links"], files)
        manifest = content["manifest"]
        if not isinstance(manifest, dict) or not isinstance(manifest.get("name", ""), str):
            raise DamagedError("no object with a name as manifest")
        if key.hash() != expected or identity(key.fields) != content["identity"]:
            raise DamagedError(f"it holds the entry {key.hash()[:12]}")
    except (InternalError, *_WRONG_CONTENT) as error:
        raise DamagedError(f"{type(error).__name__}: {error!s:.200}") from None
    return Entry(key, None, manifest, files, links)


def _files(blob: bytes, offset: int, facts: Mapping[str, Any], key: str) -> dict[str, bytes]:
    """The files after the envelope; each byte of the rest of the blob is compared."""
    if len(facts) >= _MOST_FILES:
        raise DamagedError(f"{len(facts)} files")
    files = {}
    for name, fact in sorted(facts.items()):
        size = fact["size"]
        if not is_name(name) or type(size) is not int or not 0 <= size <= LIMIT:
            raise DamagedError(f"a file {name!r:.99} of {size!r:.20} bytes")
        head = _header(f"programs/{key}/{name}", size)
        start = offset + len(head)
        data = blob[start : start + size]
        if blob[offset:start] != head or fact_of(data) != fact:
            raise DamagedError(f"{name} is not what was signed")
        offset = start + size + _padding(size)
        if blob[start + size : offset] != bytes(_padding(size)):
            raise DamagedError(f"something beside {name}")
        files[name] = data
    if blob[offset:] != _END:
        raise DamagedError("not the end that was signed")
    return files


def _links(links: Mapping[str, str], files: Mapping[str, bytes]) -> dict[str, str]:
    for name, target in links.items():
        if not is_name(name) or name in files or target not in files:
            raise DamagedError(f"a link {name!r:.99} leads to {target!r:.99}")
    return dict(links)


# -- pointers ------------------------------------------------------------------------------------
def pack_alias(alias: Alias, signer: SigningKey | None) -> bytes:
    """The signed pointer ``alias``."""
    return _sealed(ALIAS_TYPE, vars(alias), signer)


def unpack_alias(blob: bytes, expected: str, ring: Keyring) -> Alias:
    """The pointer of the identity ``expected``; errors as ``unpack``."""
    if len(blob) > ALIAS_LIMIT:
        raise DamagedError(f"a pointer of {len(blob)} bytes")
    content = _opened(blob, ALIAS_TYPE, ring)
    texts = all(isinstance(value, str) for value in content.values())
    if set(content) != {"identity", "key", "toolchain"} or not texts:
        raise DamagedError(f"a pointer with the fields {sorted(content)!r:.99}")
    alias = Alias(content["identity"], content["key"], content["toolchain"])
    if alias.identity != expected:
        raise UntrustedEnvelopeError("signed for another identity")
    if alias.key in ring.revoked_entries:
        raise UntrustedEnvelopeError("the entry is revoked")
    return alias


# -- DSSE ----------------------------------------------------------------------------------------
def _sealed(kind: str, payload: Mapping[str, Any], signer: SigningKey | None) -> bytes:
    body = canonical(dict(payload)).encode("ascii")
    signatures = [] if signer is None else [(signer.kid, signer.sign(_signed_text(kind, body)))]
    return _envelope_text(kind, body, signatures)


def _envelope_text(kind: str, body: bytes, signatures: Sequence[tuple[str, bytes]]) -> bytes:
    content = {
        "payload": base64.b64encode(body).decode("ascii"),
        "payloadType": kind,
        "signatures": [
            {"keyid": kid, "sig": base64.b64encode(sig).decode("ascii")} for kid, sig in signatures
        ],
    }
    return (canonical(content) + "\n").encode("ascii")


def _signed_text(kind: str, body: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what a signature covers."""
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(body), body)


def _opened(envelope: bytes, kind: str, ring: Keyring) -> dict[str, Any]:
    """The payload of an envelope that a trusted key has signed, in the one form that it has."""
    try:
        content = json.loads(envelope)
        body = base64.b64decode(content["payload"], validate=True)
        signatures = [
            (item["keyid"], base64.b64decode(item["sig"], validate=True))
            for item in content["signatures"]
        ]
        if envelope != _envelope_text(kind, body, signatures):
            raise DamagedError(f"not an envelope of {kind}")
    except (InternalError, binascii.Error, *_WRONG_CONTENT) as error:
        raise DamagedError(f"{type(error).__name__}: {error!s:.200}") from None
    try:
        ring.verify(_signed_text(kind, body), dict(signatures))
    except SignatureError as error:
        raise UntrustedEnvelopeError(str(error)) from None
    try:
        payload = json.loads(body)
        # Numbers of another spelling, a name twice: one text for one meaning.
        if not isinstance(payload, dict) or canonical(payload).encode("ascii") != body:
            raise DamagedError("a payload that is not canonical")
    except (InternalError, *_WRONG_CONTENT) as error:
        raise DamagedError(f"{type(error).__name__}: {error!s:.200}") from None
    return payload


def kids_of(blob: bytes) -> list[str]:
    """Who claims to have signed a blob, unverified: for messages. Empty if it cannot be read."""
    try:
        signatures = json.loads(_first_member(blob))["signatures"]
        return [str(item["keyid"])[:128] for item in signatures]
    except (DamagedError, *_WRONG_CONTENT):
        return []


# -- the tar form, byte by byte ------------------------------------------------------------------
_END = bytes(2 * _BLOCK)


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.mode, member.size = 0o644, size
    return member.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> int:
    return -size % _BLOCK


def _member(name: str, data: bytes) -> bytes:
    return _header(name, len(data)) + data + bytes(_padding(len(data)))


def _first_member(blob: bytes) -> bytes:
    """The bytes of the envelope, unverified: only its size is taken from its header."""
    if len(blob) > LIMIT:
        raise DamagedError(f"{len(blob)} bytes, more than {LIMIT}")
    try:
        size = int(blob[124:135], 8)
    except ValueError:
        raise DamagedError("not a tar file of an entry") from None
    data = blob[_BLOCK : _BLOCK + size]
    if not 0 < size <= ENVELOPE_LIMIT or not blob.startswith(_member(ENVELOPE, data)):
        raise DamagedError("no envelope in front")
    return data
