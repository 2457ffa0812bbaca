"""The look-up of a compiled program: its line in the log, aliases, and the error of strict mode."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tileops import cache, log, settings
from tileops.cache.identity import identity
from tileops.errors import CompileMissError

if TYPE_CHECKING:
    from tileops.jit.compiling import Request
    from tileops.target import Target

_SHOWN = 12  # digits of a hash


class LookUp:
    """One look-up, for the log topic ``cache``: where it ended, or why nothing was found."""

    def __init__(self, op: str, target: Target) -> None:
        self._head = f"{op} {target}"
        self._is_wanted = log.is_wanted("cache")
        self._start = time.perf_counter()

    def hit(self, layer: str, name: str, note: str = "") -> None:
        """Say that the program was found in ``layer`` under this hash.

        Layers are memory, disk, bundle and alias. ``note`` says what is special about it.
        """
        if self._is_wanted:
            more = f" ({note})" if note else ""
            log.emit("cache", f"hit {self._head} layer={layer} {self._time} {name[:_SHOWN]}{more}")

    def miss(self, name: str | None, why: Callable[[], str]) -> None:
        """Say that it was not found; ``name`` is None if its hash could not be computed."""
        if self._is_wanted:
            known = "key unknown" if name is None else name[:_SHOWN]
            taken = self._time  # before why() takes its time
            log.emit("cache", f"miss {self._head} {taken} {known} ({why()})")

    @property
    def _time(self) -> str:
        return f"{(time.perf_counter() - self._start) * 1e3:.1f} ms"


def from_alias(texts: Mapping[str, str], looked: LookUp, *, has_tools: bool) -> cache.Entry | None:
    """An entry that another compiler made of this program, where ``toolchain_match`` allows it.

    ``texts`` are the fields of its key but the toolchain.
    """
    match = settings.current().toolchain_match
    if match == "exact" or (match == "missing" and has_tools):
        return None
    entry = cache.store().find_alike(identity(texts))
    if entry is not None:
        looked.hit("alias", entry.hash, f"made by {toolchain_text(entry.key)}")
    return entry


def toolchain_text(key: cache.Key) -> str:
    """The tools of a key in words: name, version and the first digits of what they contain."""
    try:
        tools = json.loads(key.fields["toolchain"])
    except (ValueError, RecursionError):
        tools = None
    if not isinstance(tools, dict) or not tools:
        return key.fields["toolchain"]
    return ", ".join(f"{name} {_shortened(value)}" for name, value in sorted(tools.items()))


def _shortened(value: object) -> str:
    words = str(value).split()
    return " ".join(word[:8] if len(word) >= 32 else word for word in words)


def miss_error(
    request: Request, texts: Mapping[str, str], key: cache.Key | None, lack: Exception | None = None
) -> CompileMissError:
    """The error of strict mode; ``lack`` is why the key is unknown, if it is None."""
    sizes = " ".join(f"{name}={value}" for name, value in request.sizes.items())
    known = [sizes or "no sizes"]
    if key is not None:
        known.append(f"key {key.hash()[:_SHOWN]}")
    known.append(f"identity {identity(texts)[:_SHOWN]}")
    if key is None:
        known.append(f"key unknown: {lack}")
    return CompileMissError(
        f"op {request.title or request.op} needs a compile for {request.target} "
        f"({'; '.join(known)}), and strict mode allows none; run tileops.warmup or a first call "
        "without TILEOPS_STRICT"
    )
