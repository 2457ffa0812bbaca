"""Owns what is said of names that are not there, and how Python spells names inside a class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tileops.errors import ProgramAttributeError
from tileops.language.value import describe


def unmangled(name: str) -> Iterator[str]:
    """What may stand for ``name`` inside a class: ``__exp`` for ``_Class__exp``."""
    if name.startswith("_"):
        start = name.find("__", 2)
        while start > 0:
            yield name[start:]
            start = name.find("__", start + 1)


# Less is chance: `dot` is like `Not` by 0.67, and `cleer` like `clear` by 0.8.
_ALIKE = 0.7


def nearest(name: str, among: Iterable[str]) -> str | None:
    """The name of ``among`` that ``name`` is most like, capitals aside; None for none."""
    import difflib

    by_lower = {known.lower(): known for known in among}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_ALIKE)
    return by_lower[found[0]] if found else None


def unknown_construct(name: str, known: Iterable[str]) -> ProgramAttributeError:
    """The error for ``T.<name>``, at the statement being traced."""
    from tileops.language.other_languages import instead_of

    instead = instead_of(name)
    like = None if instead else nearest(name, known)
    return ProgramAttributeError(
        f"the tile language has no name {name!r}" + _meant(like and f"T.{like}", instead)
    )


def is_of_the_language(holder: object) -> bool:
    """True for a class of the language and for a value of one."""
    owner = holder if isinstance(holder, type) else type(holder)
    return owner.__module__.startswith("tileops.language")


def unknown_attribute(holder: object, name: str) -> ProgramAttributeError:
    """The error for ``holder.<name>``, where ``holder`` is a value of the language."""
    from tileops.language.other_languages import instead_of_attribute

    instead = None if isinstance(holder, (type, str)) else instead_of_attribute(name)
    like = None if instead else nearest(name, (n for n in dir(holder) if not n.startswith("_")))
    what = f"T.{holder.__name__}" if isinstance(holder, type) else describe(holder)
    return ProgramAttributeError(f"{what} has no attribute {name!r}" + _meant(like, instead))


def _meant(like: str | None, instead: str | None) -> str:
    if instead:
        return f"; {instead}"
    return f"; did you mean {like}?" if like else ""
