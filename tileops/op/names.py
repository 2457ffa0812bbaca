"""Owns the names of ops: who holds which, and what a second definition of a name becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tileops import forks, log
from tileops.errors import ArgumentError
from tileops.op.identity import Identity


@dataclass(frozen=True)
class Origin:
    """Where a program was defined; ``digest`` is 8 hexadecimal digits of its canonical text."""

    module: str
    qualname: str
    digest: str

    @property
    def is_redefinable(self) -> bool:
        """True where a later program of this origin replaces the earlier one.

        That is a notebook cell run again or a module reloaded. Programs made inside a function live
        side by side: a factory called twice means both.
        """
        return "<locals>" not in self.qualname


@dataclass(frozen=True)
class Holder:
    """The program that holds a name. ``retire`` is called with a message when it is replaced.

    ``identity`` tells whether another program is the same; ``meet`` is called with the holder of
    another program that asks for the name, and may refuse it.
    """

    origin: Origin
    retire: Callable[[str], None]
    identity: Callable[[], Identity] | None = None
    meet: Callable[[Holder], None] | None = None


@dataclass(frozen=True)
class Claim:
    """The outcome of asking for a name.

    ``name`` is the one to register; ``address`` is the one by which users reach it (another only
    for a redefinition); ``replaced`` held it before. ``warning`` is what the user must be told.
    """

    name: str
    address: str
    replaced: Holder | None = None
    warning: tuple[str, str] | None = None  # its key and its text

    def warn(self) -> None:
        """Tell the user, under no lock: a warning may run code of the user."""
        if self.warning is not None:
            log.warn_once(*self.warning)


_holders: dict[tuple[str, str], Holder] = {}
_taken: set[tuple[str, str]] = set()


def claim(
    namespace: str, name: str, holder: Holder, *, is_held_outside: Callable[[str], str | None]
) -> Claim:
    """Take ``name`` for ``holder``, or a name derived from it.

    ``is_held_outside`` tells where torch has an op of a name, None if it has none. ArgumentError
    where another library holds the name.
    """
    with forks.guard:
        key = (namespace, name)
        current = _holders.get(key)
        if current is not None and current.meet is not None:
            current.meet(holder)
        if current is None:
            if key not in _taken:
                _refuse_foreign(namespace, name, holder.origin, is_held_outside)
            result = Claim(_free(namespace, name, is_held_outside), name)
        elif current.origin.is_redefinable and _same_place(current.origin, holder.origin):
            result = Claim(_free(namespace, name, is_held_outside), name, current)
        else:
            return _claim_derived(namespace, name, holder, current, is_held_outside)
        _holders[key] = holder
        _taken.add((namespace, result.name))
        return result


def hold(namespace: str, name: str, holder: Holder) -> None:
    """Note that an op which exists already has ``name``: later claims are given derived names."""
    with forks.guard:
        _holders.setdefault((namespace, name), holder)
        _taken.add((namespace, name))


def _claim_derived(
    namespace: str,
    name: str,
    holder: Holder,
    current: Holder,
    is_held_outside: Callable[[str], str | None],
) -> Claim:
    derived = _free(namespace, f"{name}__{holder.origin.digest}", is_held_outside)
    _holders[namespace, derived] = holder
    _taken.add((namespace, derived))
    warning = (
        f"name {namespace}::{name}",
        f"the op name {namespace}::{name} is held by {place(current.origin)}; the program "
        f"{place(holder.origin)} is registered as {namespace}::{derived}. Pass name= to jit to "
        "choose.",
    )
    return Claim(derived, derived, warning=warning)


def take_derived(
    namespace: str, name: str, holder: Holder, *, is_held_outside: Callable[[str], str | None]
) -> Claim:
    """Take ``<name>__<digest>`` for a program that never asked for ``name`` itself."""
    with forks.guard:
        derived = _free(namespace, f"{name}__{holder.origin.digest}", is_held_outside)
        _holders[namespace, derived] = holder
        _taken.add((namespace, derived))
        return Claim(derived, derived)


def reserve(namespace: str, name: str, *, is_held_outside: Callable[[str], str | None]) -> str:
    """A free name, ``name`` or one derived from it, that nothing else will get."""
    with forks.guard:
        found = _free(namespace, name, is_held_outside)
        _taken.add((namespace, found))
        return found


def _same_place(a: Origin, b: Origin) -> bool:
    return (a.module, a.qualname) == (b.module, b.qualname)


def place(origin: Origin) -> str:
    """Where a program stands, in words."""
    return f"{origin.module}.{origin.qualname}".replace(".<locals> ", " ")


def holder_of(namespace: str, name: str) -> Holder | None:
    """The program that holds a name; None if nobody does."""
    with forks.guard:
        return _holders.get((namespace, name))


def ready_to_meet(namespace: str, name: str, holder: Holder) -> Holder:
    """``holder`` with its identity known, if that is going to be asked for under the guard.

    To find it out reads files and may run code of the user.
    """
    current = holder_of(namespace, name)
    if current is None or current.meet is None or holder.identity is None:
        return holder
    known = holder.identity()
    return replace(holder, identity=lambda: known)


def _refuse_foreign(
    namespace: str, name: str, origin: Origin, is_held_outside: Callable[[str], str | None]
) -> None:
    where = is_held_outside(name)
    if where is not None:
        raise ArgumentError(
            f"{place(origin)}: the op {namespace}::{name} exists already, {where}; pass another "
            "name= to jit"
        )


def _free(namespace: str, name: str, is_held_outside: Callable[[str], str | None]) -> str:
    # A name once used stays used: torch runs a new op's kernel through handles of a removed one.
    candidate, n = name, 0
    while (namespace, candidate) in _taken or is_held_outside(candidate) is not None:
        n += 1
        candidate = f"{name}_{n}"
    return candidate
