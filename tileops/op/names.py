"""The names of ops: what they may be, who holds which, and what a second definition becomes."""

from __future__ import annotations

import hashlib
import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tileops import forks, log
from tileops.errors import ArgumentError
from tileops.op.spec import OpSpec
from tileops.optional_torch import IS_HERE, torch

if TYPE_CHECKING:
    from tileops.op.bundle_ops import BundledOp

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# The namespace of programs, and that of the operators that come with tileops.
_NAMESAKES = {"tileops": "tileops_ops", "tileops_ops": "tileops"}
_EXPECTED = "expected ASCII letters, digits and _, not a keyword"


def check(namespace: str, name: str, arguments: Iterable[str], *, program: str) -> None:
    """ArgumentError for a name that torch's schemas or ``torch.ops`` refuse, naming ``program``."""
    for part in (namespace, name):
        if not _is_name(part):
            raise ArgumentError(
                f"{program}: the name of an op: {_EXPECTED}, got {part!r}; pass name= to jit"
            )
    space = torch._ops._OpNamespace(namespace) if IS_HERE else None
    if space is not None and (hasattr(type(space), name) or name in vars(space)):
        raise ArgumentError(
            f"{program}: an op's name cannot be {name!r}, which torch.ops.{namespace} has for "
            "itself; pass name= to jit"
        )
    for argument in arguments:
        if not _is_name(argument):
            raise ArgumentError(
                f"{program}: the name of an argument of an op: {_EXPECTED}, got {argument!r}"
            )


def check_namespace(namespace: object, *, where: str) -> None:
    """ArgumentError for what cannot be a namespace of ``torch.ops``, naming ``where``."""
    if not isinstance(namespace, str) or not _is_name(namespace):
        raise ArgumentError(f"{where}: a namespace of ops: {_EXPECTED}, got {namespace!r}")


def _is_name(text: str) -> bool:
    is_word = keyword.iskeyword(text) or text == "NoneType"
    return _NAME.fullmatch(text) is not None and not is_word


@dataclass(frozen=True)
class Identity:
    """What tells a program from others of its name: SHA-256 digests by what they are of."""

    parts: Mapping[str, str]

    @staticmethod
    def of(spec: OpSpec, source: str, captured: str, options: str) -> Identity:
        """The identity of an op's program: texts of its code, what it uses, and its options."""
        # The same under any name and namespace. Defaults are in the source, and a tuned op has none
        # here.
        args = tuple(replace(arg, standard=None) for arg in spec.args)
        shape = {**replace(spec, args=args).to_json(), "namespace": "", "name": ""}
        shape["schema"] = spec.schema.partition("(")[2]
        return Identity(
            {
                "source": _digest(source),
                "captured values": _digest(captured),
                "options of jit": _digest(options),
                "schema": _digest(json.dumps(shape, sort_keys=True)),
            }
        )

    @property
    def digest(self) -> str:
        """The digest of all parts: what ``op.json`` calls the definition."""
        return _digest(json.dumps(dict(self.parts), sort_keys=True))

    def difference(self, other: Mapping[str, str]) -> str:
        """The names of the parts that differ from those of another program, in words."""
        names = sorted({*self.parts, *other})
        found = [name for name in names if self.parts.get(name) != other.get(name)]
        return ", ".join(found) or "definition"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Origin:
    """Where a program was defined; ``digest`` are hexadecimal digits of its canonical text."""

    module: str
    qualname: str
    digest: str

    def __str__(self) -> str:
        return f"{self.module}.{self.qualname}".replace(".<locals> ", " ")

    def is_replaced_by(self, other: Origin) -> bool:
        """True for a notebook cell that is run again or a module that is reloaded.

        Programs made inside a function exist side by side: a factory called twice means both.
        """
        is_same_place = (self.module, self.qualname) == (other.module, other.qualname)
        return is_same_place and "<locals>" not in self.qualname


@dataclass(frozen=True)
class Holder:
    """The program that holds a name. ``retire`` is called with a message when it is replaced.

    ``meet`` is called with the holder of a program that asks for the name, and refuses another one
    than its own; ``adopted`` is the op that the same program takes over with the name.
    """

    origin: Origin
    retire: Callable[[str], None]
    identity: Callable[[], Identity] | None = None
    meet: Callable[[Holder], None] | None = None
    adopted: BundledOp | None = None


@dataclass(frozen=True)
class Claim:
    """The outcome of asking for a name: the one to register, and that by which users reach it.

    The two differ only for a redefinition; ``replaced`` held the address before. ``adopted`` is an
    op that exists and is the program's from now on.
    """

    name: str
    address: str
    replaced: Holder | None = None
    adopted: BundledOp | None = None
    warning: tuple[str, str] | None = None  # its key and its text

    def warn(self) -> None:
        """Tell the user. Not under a lock: a warning may run code of the user."""
        if self.warning is not None:
            log.warn_once(*self.warning)


_holders: dict[tuple[str, str], Holder] = {}
_taken: set[tuple[str, str]] = set()


def claim(namespace: str, name: str, holder: Holder) -> Claim:
    """Take ``name``, or one derived from it; ArgumentError if another library holds the name."""
    with forks.guard:
        current = holder_of(namespace, name)
        if current is not None and current.meet is not None:
            current.meet(holder)
            if current.adopted is not None:
                _take(namespace, name, name, holder)
                return Claim(name, name, adopted=current.adopted)
        if current is None:
            _refuse_foreign(namespace, name, holder.origin)
        elif not current.origin.is_replaced_by(holder.origin):
            derived = take_derived(namespace, name, holder)
            text = (
                f"the op name {namespace}::{name} is held by {current.origin}; the program "
                f"{holder.origin} is registered as {namespace}::{derived.name}. Pass name= to jit "
                "to choose."
            )
            return replace(derived, warning=(f"name {namespace}::{name}", text))
        result = Claim(
            _free(namespace, name), name, current, warning=_beside_operator(namespace, name)
        )
        _take(namespace, name, result.name, holder)
        return result


def _beside_operator(namespace: str, name: str) -> tuple[str, str] | None:
    """A warning where a program and an operator of tileops have one name; the program keeps it."""
    if holder_of(_NAMESAKES.get(namespace, ""), name) is None:
        return None
    return (
        f"operator {name}",
        f"torch.ops.tileops.{name} is a program; the operator of tileops with this name is "
        f"tileops.ops.{name}",
    )


def take_derived(namespace: str, name: str, holder: Holder) -> Claim:
    """Take ``<name>__<digest>`` for ``holder``, with the op if a bundle has the same program."""
    with forks.guard:
        derived = derived_name(name, holder.origin)
        adopted = _bundled(namespace, derived, holder)
        if adopted is None:
            derived = _free(namespace, derived)
        _take(namespace, derived, derived, holder)
        return Claim(derived, derived, adopted=adopted)


def derived_name(name: str, origin: Origin) -> str:
    """The name of a program that does not get ``name`` itself."""
    return f"{name}__{origin.digest}"


def _bundled(namespace: str, name: str, holder: Holder) -> BundledOp | None:
    """The op of a bundle with this name, if it is the program of ``holder``."""
    current = holder_of(namespace, name)
    if current is None or current.meet is None:
        return None
    try:
        current.meet(holder)
    except ArgumentError:
        return None  # nobody chose the name: the program gets another one
    return current.adopted


def _take(namespace: str, address: str, name: str, holder: Holder) -> None:
    _holders[namespace, address] = holder
    _taken.add((namespace, name))


def hold(namespace: str, name: str, holder: Holder) -> None:
    """Note that an op which exists already has ``name``: later claims are given derived names."""
    with forks.guard:
        _holders.setdefault((namespace, name), holder)
        _taken.add((namespace, name))


def holder_of(namespace: str, name: str) -> Holder | None:
    """The program that holds a name; None if nobody does."""
    with forks.guard:
        return _holders.get((namespace, name))


def ready_to_meet(namespace: str, name: str, holder: Holder) -> Holder:
    """``holder`` with its identity computed, if ``claim`` will ask for it: that reads files."""
    current = holder_of(namespace, name)
    if current is None or current.meet is None or holder.identity is None:
        return holder
    known = holder.identity()
    return replace(holder, identity=lambda: known)


def _refuse_foreign(namespace: str, name: str, origin: Origin) -> None:
    if (namespace, name) in _taken or not _is_known_to_torch(namespace, name):
        return
    lines = torch._C._dispatch_dump(f"{namespace}::{name}").splitlines()
    places = [line.removeprefix("debug:").strip() for line in lines if line.startswith("debug:")]
    where = places[0] if places else "registered by another library"
    raise ArgumentError(
        f"{origin}: the op {namespace}::{name} exists already, {where}; pass another name= to jit"
    )


def _is_known_to_torch(namespace: str, name: str) -> bool:
    return bool(torch._C._jit_get_schemas_for_operator(f"{namespace}::{name}"))


def _free(namespace: str, name: str) -> str:
    # A name once used stays used: torch runs a new op's kernel through handles of a removed one.
    candidate, n = name, 0
    while (namespace, candidate) in _taken or _is_known_to_torch(namespace, candidate):
        n += 1
        candidate = f"{name}_{n}"
    return candidate
