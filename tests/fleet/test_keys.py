"""The keys file: what it may hold, who may have written it, and which key signs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fleet import blobs
from tileops.cache import keys
from tileops.cache.files import Trust
from tileops.errors import CacheError

HMAC = blobs.HMAC_FILE["keys"][0]
TRUST = Trust(shared=False)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"keys": [{**HMAC, "kid": "a b"}]}, "expected letters, digits"),
        ({"keys": [{**HMAC, "alg": "none"}]}, "alg 'none': expected ed25519 or hmac-sha256"),
        ({"keys": [{**HMAC, "key": "AAAA"}]}, "a secret of 16 bytes or more"),
        ({"keys": [{**HMAC, "key": "not base64!"}]}, "key team: "),
        ({"keys": [{**HMAC, "alg": "ed25519", "key": "AAAA"}]}, "expected 32 bytes"),
        ({"keys": [{**HMAC, "not_after": "soon"}]}, "expected a date such as 2027-06-30"),
        ({"keys": [HMAC, HMAC]}, "two keys are named team"),
        ({"keys": [HMAC], "revoke": {}}, "expected keys and revoked, got revoke"),
        ({"keys": [HMAC], "revoked": {"kids": "team"}}, "revoked.kids: expected a list of texts"),
        ({}, "keys"),
        ([], "list"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(tmp_path: Path, content: object, says: str) -> None:
    path = tmp_path / "keys.json"
    blobs.keys_file(tmp_path, content)
    if not content:
        path.write_text(str(content))
    with pytest.raises(CacheError, match=r"the keys file .*keys\.json: ") as caught:
        keys.load(path, TRUST)
    assert says in str(caught.value)


def test_a_file_that_others_can_write_decides_nothing(tmp_path: Path) -> None:
    path = blobs.keys_file(tmp_path)
    path.chmod(0o666)
    with pytest.raises(CacheError, match="can be written by every user, so it decides nothing"):
        keys.load(path, TRUST)
    assert keys.load(path, Trust(shared=True)).keys


def test_a_secret_may_be_mounted_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(blobs.keys_file(tmp_path))
    assert set(keys.load(tmp_path / "link", TRUST).keys) == {"team"}


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="the keys file /none: No such file or directory"):
        keys.load("/none", TRUST)


def test_a_date_counts_to_its_end() -> None:
    def at(text: str) -> float:
        found = keys.parse({"keys": [{**HMAC, "not_after": text}]}).keys["team"].not_after
        assert found is not None
        return found

    assert at("1970-01-01") == 86399
    assert at("1970-01-01T01:00:00Z") == at("1970-01-01T01:00:00") == 3600
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    assert not keys.parse({"keys": [{**HMAC, "not_after": tomorrow}]}).keys["team"].is_expired()


def test_the_key_that_signs_is_the_only_one_or_named() -> None:
    signing, _ = keys.generate("ci", keys.ED25519)
    public = {k: v for k, v in signing.items() if k != "private"}
    assert blobs.signer(keys.parse({"keys": [{**public, "kid": "old"}, signing]})).kid == "ci"
    both = keys.parse({"keys": [signing, HMAC], "revoked": {"kids": ["gone"]}})
    assert blobs.signer(both, "team").kid == "team"
    for kid, says in (
        (None, r"name the key that signs \(sign=\); those that can: ci, team"),
        ("nobody", "no key nobody in the keys file; it has: ci, team"),
        ("gone", "the key gone is revoked"),
    ):
        with pytest.raises(CacheError, match=says):
            both.signer(kid)
    with pytest.raises(CacheError, match="those that can: none"):
        keys.parse({"keys": [public]}).signer(None)
    assert keys.Keyring(unsigned=True).signer(None) is None


def test_secrets_are_not_in_the_text_of_a_key() -> None:
    item, _ = keys.generate("ci", keys.ED25519)
    ring = keys.parse({"keys": [item, HMAC]})
    for secret in (repr(ring.keys["ci"].private), repr(ring.keys["team"].key)):
        assert secret not in repr(ring)
