"""The cache key: what a compiled program depends on, in canonical form, and its hash."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tileops import forks
from tileops.errors import InternalError

# Everything that changes compiled code is one of these; nothing else is in the key.
FIELDS = ("ir", "options", "target", "specialization", "codegen", "toolchain")


def canonical(value: object) -> str:
    """JSON text that is the same for equal values in every process: sorted, compact, ASCII.

    Takes str, int, bool, None, finite float, list, tuple and dict with str keys. InternalError for
    anything else: a value whose text could change (a set, an object's repr) must never reach a key.
    """
    _check(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _check(value: object) -> None:
    match value:
        case None | bool() | int() | str():
            return
        case float() if math.isfinite(value):
            return
        case list() | tuple():
            for item in value:
                _check(item)
        case dict():
            for name, item in value.items():
                if not isinstance(name, str):
                    raise InternalError(f"cache key: {name!r} is not a str, so it has no order")
                _check(item)
        case _:
            raise InternalError(f"cache key: {value!r} has no canonical text")


@dataclass(frozen=True)
class Key:
    """The key of one compiled program: exactly the ``FIELDS``, each a text (see ``key_of``)."""

    fields: Mapping[str, str]

    def __post_init__(self) -> None:
        names = set(self.fields)
        if names != set(FIELDS) or not all(isinstance(v, str) for v in self.fields.values()):
            raise InternalError(f"cache key: expected a text for each of {FIELDS}, got {names}")
        object.__setattr__(self, "fields", {name: self.fields[name] for name in FIELDS})

    def hash(self) -> str:
        """SHA-256 of the canonical JSON of the fields: 64 hexadecimal digits."""
        return self._hash

    @forks.ComputedOnce
    def _hash(self) -> str:
        return hashlib.sha256(canonical(dict(self.fields)).encode()).hexdigest()

    def __hash__(self) -> int:
        return hash(self.hash())

    def differences(self, other: Key) -> tuple[str, ...]:
        """Names of the fields in which the keys differ, in the order of ``FIELDS``."""
        return tuple(name for name in FIELDS if self.fields[name] != other.fields[name])

    def describe_difference(self, other: Key) -> str:
        """What differs from ``other``, the older key: a few lines a field, or nothing."""
        return "\n".join(
            f"{name}:\n{_difference(other.fields[name], self.fields[name])}"
            for name in self.differences(other)
        )


def key_of(
    *,
    ir: str,
    options: object,
    target: str,
    specialization: object,
    codegen: str,
    toolchain: Mapping[str, str],
) -> Key:
    """The key of a program: printed IR, options, full target, facts, and who makes the code.

    ``toolchain`` maps tools to versions; the others are as ``texts_of`` takes them.
    """
    texts = texts_of(
        ir=ir, options=options, target=target, specialization=specialization, codegen=codegen
    )
    return Key({**texts, "toolchain": canonical(dict(toolchain))})


def texts_of(
    *, ir: str, options: object, target: str, specialization: object, codegen: str
) -> dict[str, str]:
    """The fields of a key that need no compiler: all but the toolchain.

    ``options`` and ``specialization`` are values that ``canonical`` takes; ``codegen`` is
    ``sources.digest()``.
    """
    return {
        "ir": ir,
        "options": canonical(options),
        "target": target,
        "specialization": canonical(specialization),
        "codegen": codegen,
    }


def _difference(old: str, new: str) -> str:
    values = _parsed(old), _parsed(new)
    if all(isinstance(value, dict) for value in values):
        return "\n".join(_changed_items(*values))  # type: ignore[arg-type]
    if "\n" not in old + new:
        return f"  {old} -> {new}"
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
    body = [line for line in lines if not line.startswith(("---", "+++"))]
    shown = body[:20] + ([f"... {len(body) - 20} more lines"] if len(body) > 20 else [])
    return "\n".join(f"  {line}" for line in shown)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _changed_items(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    def shown(items: Mapping[str, object], name: str) -> str:
        return json.dumps(items[name], sort_keys=True) if name in items else "(absent)"

    pairs = [(name, shown(old, name), shown(new, name)) for name in sorted({*old, *new})]
    return [f"  {name}: {before} -> {after}" for name, before, after in pairs if before != after]
