"""Owns what is said of names that are not there, and how Python spells names inside a class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tileops.errors import ProgramAttributeError
from tileops.language.tracer import here
from tileops.language.value import describe


def unmangled(name: str) -> Iterator[str]:
    """What may stand for ``name`` inside a class: ``__exp`` for ``_Class__exp``."""
    if name.startswith("_"):
        start = name.find("__", 2)
        while start > 0:
            yield name[start:]
            start = name.find("__", start + 1)


def nearest(name: str, among: Iterable[str]) -> str | None:
    """The name of ``among`` that ``name`` is most like, capitals aside; None for none."""
    import difflib

    by_lower = {known.lower(): known for known in among}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def unknown_construct(name: str, known: Iterable[str]) -> ProgramAttributeError:
    """The error for ``T.<name>``, at the statement being traced."""
    like = nearest(name, known)
    return ProgramAttributeError(
        f"the tile language has no name {name!r}" + _meant(like and f"T.{like}"), location=here()
    )


def is_of_the_language(holder: object) -> bool:
    """True for a class of the language and for a value of one."""
    owner = holder if isinstance(holder, type) else type(holder)
    return owner.__module__.startswith("tileops.language")


def unknown_attribute(holder: object, name: str) -> ProgramAttributeError:
    """The error for ``holder.<name>``, where ``holder`` is a value of the language."""
    like = nearest(name, (n for n in dir(holder) if not n.startswith("_")))
    what = f"T.{holder.__name__}" if isinstance(holder, type) else describe(holder)
    return ProgramAttributeError(
        f"{what} has no attribute {name!r}" + _meant(like), location=here()
    )


def _meant(like: str | None) -> str:
    return f"; did you mean {like}?" if like else ""
