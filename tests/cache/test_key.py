"""The key: changes with everything that changes code, and with nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cache import samples
from tileops.cache import Key, sources
from tileops.cache.key import FIELDS, canonical
from tileops.errors import InternalError

PRINT_HASH = """
import json
from tests.cache import samples
from tileops.cache import sources
print(json.dumps({"hash": samples.key(3).hash(), "sources": sources.digest()}))
"""


def test_the_hash_is_sha256_of_canonical_json() -> None:
    import hashlib

    key = samples.key()
    text = json.dumps(dict(key.fields), sort_keys=True, separators=(",", ":"))
    assert key.hash() == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [
        {"ir": "program g()\n"},
        {"options": [["tl.enable_fast_math", "1"]]},
        {"options": []},
        {"target": "cuda:sm_90"},
        {"target": "cuda:sm_100a"},
        {"specialization": {"fast": False, "index64": False}},
        {"specialization": {"fast": True, "index64": True}},
        {"codegen": "d" * 64},
        {"toolchain": {"triton": "3.6.0", "ptxas": "12.9 0123abcd"}},
        {"toolchain": {"triton": "3.9.0", "ptxas": "12.9 fedc3210"}},
        {"toolchain": {"triton": "3.9.0"}},
    ],
    ids=str,
)
def test_each_input_changes_the_key(changes: dict[str, object]) -> None:
    changed = samples.key(**changes)
    assert changed.hash() != samples.key().hash()
    assert changed.differences(samples.key()) == tuple(changes)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, VALUES)
def test_texts_are_equal_only_for_equal_values(a: object, b: object) -> None:
    # Through JSON and back gives the value with its types: 1, 1.0 and true are three values.
    same = canonical(a) == canonical(b)
    assert same == (_typed(a) == _typed(b))
    assert _typed(json.loads(canonical(a))) == _typed(a)


def _typed(value: object) -> object:
    match value:
        case dict():
            return ("dict", sorted((k, repr(_typed(v))) for k, v in value.items()))
        case list():
            return ("list", [_typed(v) for v in value])
        case _:
            return (type(value).__name__, repr(value))


@given(st.sampled_from(FIELDS), st.text(min_size=1))
def test_any_change_of_any_field_changes_the_hash(name: str, more: str) -> None:
    fields = dict(samples.key().fields)
    changed = Key({**fields, name: fields[name] + more})
    assert changed.hash() != Key(fields).hash()
    assert changed.differences(Key(fields)) == (name,)


@given(st.permutations(FIELDS))
def test_order_does_not_matter(order: list[str]) -> None:
    fields = samples.key().fields
    assert Key({name: fields[name] for name in order}) == samples.key()
    tools = {"triton": "3.9.0", "ptxas": "12.9 0123abcd"}
    assert samples.key(toolchain=dict(reversed(tools.items()))).hash() == samples.key().hash()


def test_moving_text_between_fields_changes_the_hash() -> None:
    fields = dict(samples.key().fields)
    moved = {**fields, "ir": fields["ir"] + "x", "codegen": fields["codegen"][1:]}
    assert Key(moved).hash() != Key(fields).hash()


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), {1: "a"}, float("nan"), float("inf"), b"x", [object()], Path("/x")]
)
def test_a_value_without_canonical_text_fails_closed(value: object) -> None:
    with pytest.raises(InternalError, match="cache key"):
        canonical(value)


def test_a_missing_or_unknown_field_fails_closed() -> None:
    fields = dict(samples.key().fields)
    with pytest.raises(InternalError, match="expected a text for each"):
        Key({name: text for name, text in fields.items() if name != "toolchain"})
    with pytest.raises(InternalError, match="expected a text for each"):
        Key({**fields, "path": "/tmp"})
    with pytest.raises(InternalError, match="expected a text for each"):
        Key({**fields, "ir": None})  # type: ignore[dict-item]


def test_processes_agree_whatever_their_surroundings(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    surroundings = [
        (samples.environment(None, PYTHONHASHSEED="1", HOME=str(other)), other),
        (samples.environment(None, PYTHONHASHSEED="99", LANG="C", LC_ALL="C"), tmp_path),
        (samples.environment(None, PYTHONUTF8="0", TZ="Asia/Tokyo"), samples.ROOT),
    ]
    found = [
        samples.result(samples.start(PRINT_HASH, env=env, cwd=cwd)) for env, cwd in surroundings
    ]
    assert {f["hash"] for f in found} == {samples.key(3).hash()}
    assert {f["sources"] for f in found} == {sources.digest()}


def test_a_difference_is_described() -> None:
    key = samples.key(ir="a\nb\nc\n", toolchain={"triton": "3.9.0"})
    old = samples.key(ir="a\nB\nc\n", toolchain={"triton": "3.6.0", "ptxas": "1"})
    text = key.describe_difference(old)
    assert 'triton: "3.6.0" -> "3.9.0"' in text
    assert 'ptxas: "1" -> (absent)' in text
    assert "-B" in text
    assert "+b" in text
    assert "target" not in text


def _copy_of_sources(folder: Path) -> tuple[Path, Path]:
    package, headers = folder / "tileops", folder / "csrc"
    samples.generators(package)
    headers.mkdir()
    (headers / "gemm.h").write_text("// gemm\n")
    return package, headers


def test_the_digest_of_the_generators_sees_every_source(tmp_path: Path) -> None:
    package, headers = _copy_of_sources(tmp_path)
    before = sources.compute(package, headers)
    for path in sorted(tmp_path.rglob("*.*")):
        old = path.read_text()
        path.write_text(old + "x")
        assert sources.compute(package, headers) != before, path
        path.write_text(old)
        if path.parent == package:
            continue  # a module that is named, and has to be there
        path.rename(path.with_name("renamed" + path.suffix))
        assert sources.compute(package, headers) != before, path
        path.with_name("renamed" + path.suffix).rename(path)
    assert sources.compute(package, headers) == before


def test_the_digest_ignores_place_and_byte_code(tmp_path: Path) -> None:
    here = _copy_of_sources(tmp_path / "a")
    there = _copy_of_sources(tmp_path / "b")
    (there[0] / "passes" / "__pycache__").mkdir()
    (there[0] / "passes" / "__pycache__" / "one.pyc").write_bytes(b"x")
    assert sources.compute(*here) == sources.compute(*there)


def test_the_build_writes_the_same_digest(tmp_path: Path) -> None:
    package, headers = _copy_of_sources(tmp_path)
    module = tmp_path / "_sources_digest.py"
    sources.write_module(module, package, headers)
    names: dict[str, str] = {}
    exec(module.read_text(), names)
    assert names["DIGEST"] == sources.compute(package, headers)
