"""The keys that sign and verify entries of a fleet cache, and what was revoked.

A keys file is JSON, base64 for bytes, dates in UTC::

    {"keys": [{"kid": "ci-2026", "alg": "ed25519", "key": "…", "not_after": "2027-06-30"}],
     "revoked": {"kids": ["ci-2024"], "entries": ["1fa1…"]}}

``key`` is the public key of ed25519 or the secret of hmac-sha256; who signs with ed25519 has
``private`` too. The algorithm is what this file says, never what an envelope says.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hmac
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tileops.cache.files import Trust, UntrustedError, read_file
from tileops.errors import CacheError

ED25519, HMAC = "ed25519", "hmac-sha256"
_LEAST_SECRET = 16  # bytes
_LIMIT = 1 << 20  # bytes of a keys file
_KID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@\-]{0,127}")
_ED25519_BYTES = 32


class SignatureError(Exception):
    """A signature that does not count here; the text says which key and why."""


@dataclass(frozen=True)
class SigningKey:
    """One key. ``not_after`` is in Unix seconds, None is for ever."""

    kid: str
    alg: str
    key: bytes = field(repr=False)
    private: bytes | None = field(default=None, repr=False)
    not_after: float | None = None

    def sign(self, message: bytes) -> bytes:
        """The signature of ``message``; CacheError if this key cannot sign (any more)."""
        if self.is_expired():
            raise CacheError(f"the key {self.kid} has expired")
        if self.alg == HMAC:
            return hmac.digest(self.key, message, "sha256")
        if self.private is None:
            raise CacheError(f"the key {self.kid} has no private part, so it cannot sign")
        from cryptography.hazmat.primitives.asymmetric import ed25519

        signed: bytes = ed25519.Ed25519PrivateKey.from_private_bytes(self.private).sign(message)
        return signed

    def verify(self, message: bytes, signature: bytes) -> None:
        """SignatureError unless ``signature`` is this key's signature of ``message``."""
        if self.is_expired():
            raise SignatureError(f"the key {self.kid} has expired")
        if not self._is_signature(message, signature):
            raise SignatureError(f"the signature by {self.kid} is not right")

    def is_expired(self) -> bool:
        """True after its last moment."""
        return self.not_after is not None and time.time() > self.not_after

    def _is_signature(self, message: bytes, signature: bytes) -> bool:
        if self.alg == HMAC:
            return hmac.compare_digest(hmac.digest(self.key, message, "sha256"), signature)
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ed25519

        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.key).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Keyring:
    """The keys of a keys file. ``unsigned``: no signature is asked for."""

    keys: Mapping[str, SigningKey] = field(default_factory=dict)
    revoked_kids: frozenset[str] = frozenset()
    revoked_entries: frozenset[str] = frozenset()
    unsigned: bool = False

    def signer(self, kid: str | None) -> SigningKey | None:
        """The key named ``kid``, or the only one that can sign; None where none is needed.

        CacheError if there is no such key, or several and none was named.
        """
        if kid is None:
            able = [k for k in self.keys.values() if k.alg == HMAC or k.private is not None]
            able = [k for k in able if k.kid not in self.revoked_kids and not k.is_expired()]
            if len(able) == 1:
                return able[0]
            if self.unsigned:
                return None
            names = ", ".join(sorted(k.kid for k in able)) or "none"
            raise CacheError(f"name the key that signs (sign=); those that can: {names}")
        if kid in self.revoked_kids:
            raise CacheError(f"the key {kid} is revoked")
        if kid not in self.keys:
            names = ", ".join(sorted(self.keys)) or "none"
            raise CacheError(f"no key {kid} in the keys file; it has: {names}")
        return self.keys[kid]

    def verify(self, message: bytes, signatures: Mapping[str, bytes]) -> str | None:
        """The key whose signature of ``message`` counts; None where none is asked for.

        ``signatures`` are by key name. SignatureError if none counts.
        """
        if self.unsigned:
            return None
        problems = []
        for kid, signature in signatures.items():
            if kid in self.revoked_kids:
                problems.append(f"the key {kid} is revoked")
            elif kid not in self.keys:
                problems.append(f"the key {kid} is unknown")
            else:
                try:
                    self.keys[kid].verify(message, signature)
                except SignatureError as error:
                    problems.append(str(error))
                else:
                    return kid
        raise SignatureError("; ".join(problems) or "unsigned")


def load(path: Path | str, trust: Trust, *, unsigned: bool = False) -> Keyring:
    """The keyring in the file ``path``; CacheError naming the file if it cannot be used."""
    # Secrets are often mounted as links; the file that they lead to is the one that counts.
    real = os.path.realpath(path)
    try:
        text = read_file(real, limit=_LIMIT, trust=trust)
    except UntrustedError as error:
        raise CacheError(f"the keys file {error}, so it decides nothing") from None
    except OSError as error:
        raise CacheError(f"the keys file {path}: {error.strerror}") from None
    try:
        return parse(json.loads(text), unsigned=unsigned)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CacheError(f"the keys file {path}: {error!s:.200}") from None


def parse(content: Mapping[str, Any], *, unsigned: bool = False) -> Keyring:
    """The keyring that the JSON of a keys file describes; ValueError and others if it is none."""
    unknown = sorted(set(content) - {"keys", "revoked"})
    if unknown:
        raise ValueError(f"expected keys and revoked, got {', '.join(unknown)}")
    found: dict[str, SigningKey] = {}
    for item in content["keys"]:
        key = _key(item)
        if key.kid in found:
            raise ValueError(f"two keys are named {key.kid}")
        found[key.kid] = key
    revoked = content.get("revoked", {})
    kids, entries = (_texts(revoked, name) for name in ("kids", "entries"))
    return Keyring(found, kids, entries, unsigned)


def _texts(revoked: Mapping[str, Any], name: str) -> frozenset[str]:
    values = revoked.get(name, [])
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"revoked.{name}: expected a list of texts")
    return frozenset(values)


def _key(item: Mapping[str, Any]) -> SigningKey:
    kid, alg = item["kid"], item["alg"]
    if not isinstance(kid, str) or not _KID.fullmatch(kid):
        raise ValueError(f"kid {kid!r:.140}: expected letters, digits and _.:@-")
    if alg not in (ED25519, HMAC):
        raise ValueError(f"key {kid}: alg {alg!r:.40}: expected {ED25519} or {HMAC}")
    key = _bytes(kid, item["key"])
    private = _bytes(kid, item["private"]) if "private" in item else None
    if alg == ED25519 and not {len(key), len(private or key)} == {_ED25519_BYTES}:
        raise ValueError(f"key {kid}: expected {_ED25519_BYTES} bytes")
    if alg == HMAC and len(key) < _LEAST_SECRET:
        raise ValueError(f"key {kid}: expected a secret of {_LEAST_SECRET} bytes or more")
    return SigningKey(kid, alg, key, private, _moment(kid, item.get("not_after")))


def _bytes(kid: str, text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise ValueError(f"key {kid}: {error}") from None


def _moment(kid: str, text: object) -> float | None:
    if text is None:
        return None
    try:
        if not isinstance(text, str):
            raise ValueError
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):  # to the end of that day
            text += "T23:59:59+00:00"
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(
            f"key {kid}: not_after {text!r:.40}: expected a date such as 2027-06-30"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


def generate(kid: str, alg: str, not_after: str | None = None) -> tuple[dict[str, Any], bool]:
    """A new key as an item of a keys file, and whether who only verifies needs less of it.

    CacheError if ``cryptography`` is missing or ``kid`` cannot be a name.
    """
    if alg == HMAC:
        item: dict[str, Any] = {"kid": kid, "alg": alg, "key": _text(os.urandom(32))}
    else:
        try:
            from cryptography.hazmat.primitives.asymmetric import ed25519
        except ImportError:
            raise CacheError(MISSING) from None
        private = ed25519.Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        item = {
            "kid": kid,
            "alg": alg,
            "key": _text(public),
            "private": _text(private.private_bytes_raw()),
        }
    if not_after is not None:
        item["not_after"] = not_after
    try:
        _key(item)
    except ValueError as error:
        raise CacheError(str(error)) from None
    return item, alg == ED25519


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


MISSING = "ed25519 keys need the package cryptography: pip install 'tileops-torch[remote]'"


def is_usable(ring: Keyring) -> bool:
    """False if the ring has ed25519 keys and nothing here can compute with them."""
    import importlib.util

    has_ed25519 = any(key.alg == ED25519 for key in ring.keys.values())
    return not has_ed25519 or importlib.util.find_spec("cryptography") is not None
