"""The facts of a call's numbers that choose among the entries of a program with foreign kernels.

A call finds an entry by its key words as usual. Where foreign kernels depend on facts of run-time
integers, what it finds first holds a host program for these integers, and their facts lead on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops.errors import ArgumentError
from tileops.ir.extern import WIDE, ChoiceKey, choice_keys, with_words, words_of
from tileops.ir.program import Program
from tileops.op.host_program import HostProgramBuilder

Words = tuple[int, ...]


def input_names(program: Program) -> dict[int, str]:
    """The name in host programs of each size and scalar, by the id of its variable."""
    names = {size.var.id: f"size:{n}" for n, size in enumerate(program.sizes)}
    names.update((s.var.id, f"scalar:{n}") for n, s in enumerate(program.scalars()))
    return names


def choice_of(program: Program, names: Mapping[int, str]) -> dict[str, Any]:
    """The part of a record that says which calls the entry is for; empty where every call is."""
    keys = choice_keys(program)
    if not keys:
        return {}
    host = HostProgramBuilder(names)
    slots = [host.add(key.value) for key in keys]
    described = host.finish().to_json()
    return {
        "choice": {
            "host": described,
            "keys": [_key(host.slot(slot), key) for slot, key in zip(slots, keys, strict=True)],
            "words": list(words_of(program)),
        }
    }


def _key(slot: int, key: ChoiceKey) -> dict[str, int]:
    return {"slot": slot} if key.mask is None else {"slot": slot, "mask": key.mask}


def chosen(
    program: Program, sizes: Mapping[str, int], scalars: Mapping[str, object], words: Words | None
) -> Program:
    """The program under the facts ``words``, else those of a call with these sizes and scalars.

    Without both it assumes nothing. ArgumentError where a number that the code must know is not
    given.
    """
    keys = choice_keys(program)
    if not keys:
        return program
    if words is None:
        words = _words(program, keys, sizes, scalars) or _general(program, keys)
    return with_words(program, words)


def _words(
    program: Program,
    keys: tuple[ChoiceKey, ...],
    sizes: Mapping[str, int],
    scalars: Mapping[str, object],
) -> Words | None:
    """The words of a call; None where a number that they depend on is not given."""
    names = input_names(program)
    host = HostProgramBuilder(names)
    slots = [host.add(key.value) for key in keys]
    values: dict[str, Any] = {
        names[s.var.id]: sizes[s.var.name] for s in program.sizes if s.var.name in sizes
    }
    values |= {names[s.var.id]: scalars[s.name] for s in program.scalars() if s.name in scalars}
    finished = host.finish()
    if any(name not in values for name in finished.inputs):
        return None
    found = finished.evaluate(values)
    return tuple(
        key.word(int(found[host.slot(slot)])) for key, slot in zip(keys, slots, strict=True)
    )


def _general(program: Program, keys: tuple[ChoiceKey, ...]) -> Words:
    for key in keys:
        if key.mask is None:
            raise ArgumentError(
                f"{program.name}: a foreign kernel is compiled for the number {key.value}, which "
                "only a call tells; call the program before, or make the size a T.const"
            )
    return (0,) * len(keys)


def general_words(program: Program) -> Words | None:
    """The facts that hold for each call that needs the same numbers and widths; None for none."""
    keys = choice_keys(program)
    if not keys:
        return None
    pairs = zip(keys, words_of(program), strict=True)
    return tuple(word if key.mask is None else word & WIDE for key, word in pairs)
