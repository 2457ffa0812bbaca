"""The identity: the key without the toolchain."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.cache import samples
from tileops.cache.identity import FIELDS, identity


def test_it_is_sha256_of_canonical_json_of_the_fields_but_the_toolchain() -> None:
    fields = samples.key().fields
    assert set(fields) - set(FIELDS) == {"toolchain"}
    text = json.dumps({n: fields[n] for n in FIELDS}, sort_keys=True, separators=(",", ":"))
    assert identity(fields) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [
        {"ir": "program g()\n"},
        {"options": []},
        {"target": "cuda:sm_100a"},
        {"specialization": {"fast": True, "index64": True}},
        {"codegen": "d" * 64},
    ],
    ids=str,
)
def test_each_field_but_the_toolchain_changes_it(changes: dict[str, object]) -> None:
    assert identity(samples.key(**changes).fields) != identity(samples.key().fields)


def test_another_toolchain_has_another_key_and_the_same_identity() -> None:
    one, other = samples.key(), samples.key(toolchain={"triton": "3.6.0"})
    assert one.hash() != other.hash()
    assert identity(one.fields) == identity(other.fields)
