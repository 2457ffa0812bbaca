"""Owns what tells the program of an op from another of the same name: digests of its parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tileops.op.spec import OpSpec


@dataclass(frozen=True)
class Identity:
    """``parts`` are SHA-256 digests by what they are of, in words that messages use."""

    parts: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The digest of all parts: what ``op.json`` calls the definition."""
        return text_digest(json.dumps(dict(self.parts), sort_keys=True))

    def difference(self, other: Mapping[str, str]) -> str:
        """Which parts of a program with ``other`` parts are not these, in words."""
        names = sorted({*self.parts, *other})
        found = [name for name in names if self.parts.get(name) != other.get(name)]
        return ", ".join(found) or "definition"


@dataclass(frozen=True)
class Named:
    """A program: the name of its op, where it stands, and its identity if that is needed."""

    name: str
    origin: str
    identity: Callable[[], Identity]


def identity_of(spec: OpSpec, source: str, captured: str, options: str) -> Identity:
    """The identity of an op's program: texts of its code, of what it uses, and of its options."""
    # Under whichever name and namespace it is registered. Defaults are in the source, and a tuned
    # op has none here.
    args = tuple(replace(arg, standard=None) for arg in spec.args)
    shape = {**replace(spec, args=args).to_json(), "namespace": "", "name": ""}
    shape["schema"] = spec.schema.partition("(")[2]
    return Identity(
        {
            "source": text_digest(source),
            "captured values": text_digest(captured),
            "options of jit": text_digest(options),
            "schema": text_digest(json.dumps(shape, sort_keys=True)),
        }
    )


def text_digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
