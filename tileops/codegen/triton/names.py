"""Owns the names in generated text: the user's own, made valid and unique."""

from __future__ import annotations

import keyword

from tileops.codegen.triton.text import identifier

# What generated code itself uses; Triton also gives meaning to some builtins.
_RESERVED = frozenset(
    {
        "tl",
        "triton",
        "libdevice",
        "range",
        "min",
        "max",
        "abs",
        "float",
        "int",
        "bool",
        "print",
        "len",
        "sum",
    }
)


def entry_name(wanted: str) -> str:
    """A name for a function of the module close to ``wanted``.

    Names that begin with ``_`` belong to the module's own functions, and PTX has no name ``_``.
    """
    base = identifier(wanted)
    return f"kernel_{base}" if _is_reserved(base) or base.startswith("_") else base


def _is_reserved(name: str) -> bool:
    return name in _RESERVED or keyword.iskeyword(name)


class Names:
    """Gives out names of one kernel; a second use of a name gets a number."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)

    def fresh(self, wanted: str) -> str:
        """A valid name close to ``wanted`` that nothing else in the kernel has."""
        base = identifier(wanted)
        if _is_reserved(base):
            base += "_"
        name, n = base, 1
        while name in self._taken:
            name = f"{base}_{n}"
            n += 1
        self._taken.add(name)
        return name
