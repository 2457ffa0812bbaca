"""The signed form of an entry: it comes out whole, or it is refused with the reason."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.fleet import blobs, fuzz
from tileops.cache import archive, envelope, keys
from tileops.cache.directory import Directory
from tileops.cache.entry import DamagedError
from tileops.cache.envelope import (
    Alias,
    UntrustedEnvelopeError,
    pack,
    pack_alias,
    unpack,
    unpack_alias,
)
from tileops.cache.files import Trust
from tileops.cache.identity import identity

MUTATED = int(os.environ.get("TILEOPS_MUTATED_ENVELOPES", "3000"))


@pytest.mark.parametrize("alg", [keys.HMAC, keys.ED25519])
def test_an_entry_comes_out_as_it_went_in(alg: str) -> None:
    ring = keys.parse({"keys": [keys.generate("ci", alg)[0]]})
    entry = blobs.entry(3)
    found = unpack(pack(entry, blobs.signer(ring), blobs.PROVENANCE), entry.hash, ring)
    assert found == entry
    assert set(found.files) == {"launch0.cubin", "program.txt", "options.txt"}
    assert found.links == {"kernel.cubin": "launch0.cubin"}


def test_the_same_entry_gives_the_same_bytes() -> None:
    assert blobs.blob(1) == blobs.blob(1)


def test_a_public_key_alone_verifies_and_does_not_sign() -> None:
    item = keys.generate("ci", keys.ED25519)[0]
    public = keys.parse({"keys": [{k: v for k, v in item.items() if k != "private"}]})
    data = blobs.blob(0, keys.parse({"keys": [item]}))
    assert unpack(data, blobs.entry(0).hash, public).hash == blobs.entry(0).hash
    with pytest.raises(Exception, match="the key ci has no private part, so it cannot sign"):
        pack(blobs.entry(0), public.signer("ci"), blobs.PROVENANCE)


def test_the_blob_is_an_archive_that_tar_reads_and_import_takes(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(blobs.blob(2))) as tar:
        names = tar.getnames()
    assert names[0] == "envelope.json"
    assert set(names[1:]) == {f"programs/{blobs.entry(2).hash}/{n}" for n in blobs.entry(2).files}
    (tmp_path / "x.tar").write_bytes(blobs.blob(2))
    directory = Directory(tmp_path / "cache", True, Trust(shared=False))
    assert (
        archive.load(directory, tmp_path / "x.tar")[0] == 0
    )  # signed entries come through remotes


OTHER = keys.parse({"keys": [{**blobs.HMAC_FILE["keys"][0], "kid": "other"}]})
WRONG_SECRET = keys.parse(
    {"keys": [{**blobs.HMAC_FILE["keys"][0], "key": base64.b64encode(bytes(32)).decode()}]}
)


@pytest.mark.parametrize(
    ("ring", "number", "reason"),
    [
        (OTHER, 0, "the key team is unknown"),
        (WRONG_SECRET, 0, "the signature by team is not right"),
        (keys.Keyring(), 0, "the key team is unknown"),
        (blobs.hmac_ring(revoked={"kids": ["team"]}), 0, "the key team is revoked"),
        (blobs.hmac_ring(revoked={"entries": [blobs.entry(0).hash]}), 0, "is revoked"),
        (keys.parse({"keys": [{**blobs.HMAC_FILE["keys"][0], "not_after": "2020-01-01"}]}), 0, "the key team has expired"),
        (blobs.hmac_ring(), 1, "signed for another entry"),
    ],
    ids=["unknown_key", "wrong_secret", "no_keys", "revoked_key", "revoked_entry", "expired", "swapped"],
)  # fmt: skip
def test_who_is_not_trusted_is_named(ring: keys.Keyring, number: int, reason: str) -> None:
    with pytest.raises(UntrustedEnvelopeError, match=reason):
        unpack(blobs.blob(0), blobs.entry(number).hash, ring)


def test_unsigned_blobs_need_a_ring_that_allows_them() -> None:
    data = pack(blobs.entry(0), None, blobs.PROVENANCE)
    with pytest.raises(UntrustedEnvelopeError, match="unsigned"):
        unpack(data, blobs.entry(0).hash, blobs.hmac_ring())
    assert (
        unpack(data, blobs.entry(0).hash, keys.Keyring(unsigned=True)).hash == blobs.entry(0).hash
    )
    with pytest.raises(DamagedError):  # what it says of its files still holds
        unpack(data[:-2000] + b"x" + data[-1999:], blobs.entry(0).hash, keys.Keyring(unsigned=True))


def test_the_algorithm_is_what_the_keys_file_says() -> None:
    # A public key must not serve as the secret of an HMAC.
    item = keys.generate("ci", keys.ED25519)[0]
    public = item["key"]
    forger = keys.parse({"keys": [{"kid": "ci", "alg": "hmac-sha256", "key": public}]})
    with pytest.raises(UntrustedEnvelopeError, match="not right"):
        unpack(blobs.blob(0, forger), blobs.entry(0).hash, keys.parse({"keys": [item]}))


def resigned(change: str, value: object) -> bytes:
    """A blob whose payload a trusted key signed after a change: the signer is at fault."""
    whole = blobs.blob(0)
    first = envelope._first_member(whole)
    payload = json.loads(base64.b64decode(json.loads(first)["payload"]))
    place = payload
    *path, last = change.split("|")
    for name in path:
        place = place[name]
    place[last] = value
    sealed = envelope._sealed(envelope.ENTRY_TYPE, payload, blobs.signer(blobs.hmac_ring()))
    return (
        envelope._member("envelope.json", sealed)
        + whole[len(envelope._member("envelope.json", first)) :]
    )


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("format", 99),
        ("identity", "0" * 64),
        ("fields|target", "cuda:sm_80"),
        ("fields|codegen", "d" * 64),
        ("files|launch0.cubin|sha256", "0" * 64),
        ("files|launch0.cubin|size", 1 << 40),
        ("files|launch0.cubin|size", -1),
        ("files|launch0.cubin|size", True),
        ("files|../evil", {"size": 0, "sha256": ""}),
        ("links|x", "../../etc/passwd"),
        ("links|../x", "launch0.cubin"),
        ("manifest", []),
        ("manifest", {"name": 7}),
        ("files", {}),
        ("fields", None),
    ],
)
def test_what_a_trusted_signer_got_wrong_is_damage(change: str, value: object) -> None:
    with pytest.raises(DamagedError):
        unpack(resigned(change, value), blobs.entry(0).hash, blobs.hmac_ring())


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DamagedError, match="more than"):
        unpack(bytes(envelope.LIMIT + 1), blobs.entry(0).hash, blobs.hmac_ring())
    monkeypatch.setattr(envelope, "LIMIT", 4096)
    with pytest.raises(DamagedError, match="too large to travel"):
        blobs.blob(0)


@pytest.mark.parametrize("data", [b"", b"x", bytes(10_000), b"\xff" * 5000, b"{}" * 600])
def test_anything_else_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedError):
        unpack(data, "0" * 64, blobs.hmac_ring())


def test_no_mutated_blob_is_accepted() -> None:
    found = fuzz.fuzz(MUTATED, 0, seed=MUTATED)
    assert found["accepted"] == 0
    assert found["DamagedError"] > MUTATED / 4
    assert found["UntrustedEnvelopeError"] > 0


def test_pointers_are_bound_to_their_identity() -> None:
    ring, entry = blobs.hmac_ring(), blobs.entry(0)
    name = identity(entry.key.fields)
    data = pack_alias(Alias(name, entry.hash, entry.key.fields["toolchain"]), blobs.signer(ring))
    assert unpack_alias(data, name, ring).key == entry.hash
    with pytest.raises(UntrustedEnvelopeError, match="signed for another identity"):
        unpack_alias(data, "0" * 64, ring)
    with pytest.raises(UntrustedEnvelopeError, match="is revoked"):
        unpack_alias(data, name, blobs.hmac_ring(revoked={"entries": [entry.hash]}))
    with pytest.raises(DamagedError):
        unpack_alias(blobs.blob(0), name, ring)
    with pytest.raises((DamagedError, UntrustedEnvelopeError)):
        unpack_alias(data.replace(b"a", b"b", 1), name, ring)
