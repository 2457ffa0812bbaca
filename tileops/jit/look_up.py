"""The look-up of a compiled program: its line in the log, aliases, and the error of strict mode."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tileops import cache, counters, log, settings
from tileops.cache.identity import identity
from tileops.errors import CompileMissError
from tileops.jit.serving import Form, UnfitError, forms_for, in_form, toolchain_text

if TYPE_CHECKING:
    from tileops.target import Target

_SHOWN = 12  # digits of a hash

# An entry of an identity that serves, or None.
_Find = Callable[[str, Callable[[cache.Entry], bool]], cache.Entry | None]


class LookUp:
    """One look-up, for metrics, hooks and the log topic ``cache``: where it ended, or why not."""

    def __init__(self, op: str, target: Target) -> None:
        self._op, self._target = op, str(target)
        self._start = time.perf_counter()
        self._refusals: list[str] = []

    def refuse(self, reason: str) -> None:
        """Note why something that was found could not be used, for a miss."""
        if reason not in self._refusals:
            self._refusals.append(reason)

    @property
    def refusals(self) -> str:
        """The reasons that were noted, each behind a semicolon; empty without one."""
        return "".join(f"; {reason}" for reason in self._refusals)

    def hit(self, layer: str, name: str, *notes: str) -> None:
        """Say that the program was found in ``layer`` under this hash.

        Layers are memory, disk, bundle, alias and remote. ``notes`` say what is special about it.
        """
        self._record("hit", layer, self._spent(), name, "; ".join(filter(None, notes)))

    def miss(self, name: str | None, why: Callable[[], str]) -> None:
        """Say that it was not found; ``name`` is None if its hash could not be computed."""
        spent = self._spent()  # before why() takes its time
        is_wanted = log.is_wanted("cache") or counters.is_listened_to("lookup")
        self._record("miss", "", spent, name, why() + self.refusals if is_wanted else "")

    def _spent(self) -> float:
        return time.perf_counter() - self._start

    def _record(self, result: str, layer: str, spent: float, name: str | None, why: str) -> None:
        event = counters.LookUpEvent(self._op, self._target, result, layer, spent, name, why)
        counters.record_lookup(event)


def from_alias(
    texts: Mapping[str, str],
    target: Target,
    device: int | None,
    looked: LookUp,
    *,
    has_tools: bool,
) -> cache.Entry | None:
    """An entry that another compiler made of this program, where ``toolchain_match`` allows it.

    ``texts`` are the fields of its key but the toolchain. Where the compiler is there, code for
    other targets does not serve: it can make the target's own.
    """
    match = settings.current().toolchain_match
    if match == "exact" or (match == "missing" and has_tools):
        return None
    places: list[tuple[str, _Find]] = [("alias", cache.store().find_alike)]
    if not has_tools and settings.current().remote is not None:
        places.append(("remote", _remote_finder(looked)))
    forms = forms_for(target, device)[: 1 if has_tools else None]
    for (layer, find), form in itertools.product(places, forms):
        made: list[cache.Entry] = []

        def serves(entry: cache.Entry, form: Form = form, made: list[cache.Entry] = made) -> bool:
            try:
                made.append(in_form(entry, form, target, device))
            except UnfitError as error:
                looked.refuse(str(error))
            return bool(made)

        found = find(identity({**texts, "target": str(form.target)}), serves)
        if found is not None:
            tools = f"made by {toolchain_text(found.key)}"
            looked.hit(layer, found.hash, form.note(target), tools)
            return made[-1]
    return None


def _remote_finder(looked: LookUp) -> _Find:
    """As ``find_alike``, but in the remote: what it finds is kept here. One miss waits for it."""
    # Imported where there is a remote and something is missing.
    from tileops.cache.remote import fleet

    remote = fleet.current()
    assert remote is not None, "the settings name it"
    remote.prepare()
    budget = remote.budget()

    def find(name: str, serves: Callable[[cache.Entry], bool]) -> cache.Entry | None:
        answer = remote.look_up_alike(name, budget)
        if answer.why:
            looked.refuse(answer.why)
        if answer.entry is None or not serves(answer.entry):
            return None
        kept = cache.store().add(answer.entry)
        return kept if serves(kept) else None

    return find


def miss_error(
    what: str,
    sizes: Mapping[str, int | str],
    texts: Mapping[str, str],
    looked: LookUp,
    key: cache.Key | None,
    lack: Exception | None = None,
) -> CompileMissError:
    """The error of strict mode for op ``what``; ``lack`` is why the key is unknown, if it is."""
    known = [" ".join(f"{name}={value}" for name, value in sizes.items()) or "no sizes"]
    if key is not None:
        known.append(f"key {key.hash()[:_SHOWN]}")
    known.append(f"identity {identity(texts)[:_SHOWN]}")
    if key is None:
        known.append(f"key unknown: {lack}")
    return CompileMissError(
        f"op {what} needs a compile for {texts['target']} ({'; '.join(known)}{looked.refusals}), "
        "and strict mode allows none; run tileops.warmup or a first call without TILEOPS_STRICT"
    )
