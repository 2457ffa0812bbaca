"""Launches of foreign kernels: the kernel, its grid, its arguments, and the facts assumed of them.

Code for a foreign kernel may depend on facts of integers that are known only at a call: that one is
1 or divisible by 16, or its value, where it is passed as a compile-time constant. A traced program
leaves these facts open. ``choice_keys`` lists what they depend on; ``with_words`` fills them in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tileops.ir.expr import Buffer, Const, Expr, comma_separated
from tileops.location import Location

if TYPE_CHECKING:
    from tileops.ir.program import Program

# The bits of an integer's fact, which are those that Triton specialises on. An integer that is 1
# has the first alone.
ONE, DIVISIBLE, WIDE = 1, 2, 4
DIVISOR = 16
_INT32 = range(-(1 << 31), 1 << 31)
ARG_KINDS = ("tensor", "descriptor", "int", "float", "bool", "choice", "constant")
_OF_TENSORS = ("tensor", "descriptor")


def fact_of(value: int, mask: int) -> int:
    """The fact of an integer: is it 1, is it divisible by 16, does it need 64 bits."""
    if value == 1:
        return ONE & mask
    found = DIVISIBLE if value % DIVISOR == 0 else 0
    return (found | (0 if value in _INT32 else WIDE)) & mask


@dataclass(frozen=True)
class TensorMap:
    """How the copy engine of a GPU sees a tensor: ``box`` is what one copy moves, in elements.

    ``shape`` and ``strides``, in elements, are evaluated at each call. Elements outside are 0, or
    NaN with ``nans``. ``swizzle`` in bytes is for kernels that are not Triton's; ``layout`` is the
    text of Gluon's layout. ``tf32``: copies round f32 to tf32.
    """

    box: tuple[int, ...]
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    swizzle: int = 0
    nans: bool = False
    layout: str = ""
    tf32: bool = False

    def text(self) -> str:
        """The canonical text, a part of a line."""
        words = [f"box {list(self.box)}", f"of [{comma_separated(self.shape)}]"]
        words.append(f"by [{comma_separated(self.strides)}]")
        words += [f"swizzle {self.swizzle}"] if self.swizzle else []
        words += [word for word, is_so in (("nans", self.nans), ("tf32", self.tf32)) if is_so]
        return " ".join([*words, self.layout]).rstrip()


@dataclass(frozen=True)
class ExternArg:
    """One argument of a foreign kernel, by the name of its parameter.

    ``kind`` tensor: ``value`` is a global buffer, ``is_written`` tells whether the kernel may write
    it. descriptor: the same, and the kernel gets ``map`` of it. int, float, bool: an expression
    that each call evaluates. choice: an integer expression whose number is a compile-time constant.
    constant: the text of a Python value.

    ``mask`` has the bits of the facts on which code for an int may depend. ``fact`` is the fact
    assumed of an int and the number of a choice; None while it is open. ``type`` is the type that
    the kernel declares for a number, empty if none.
    """

    name: str
    kind: str
    value: Buffer | Expr | str
    mask: int = 0
    fact: int | None = None
    is_written: bool = False
    type: str = ""
    map: TensorMap | None = None

    def text(self) -> str:
        """The canonical text of one line."""
        declared = f": {self.type}" if self.type else ""
        mask = f" facts {self.mask}" if self.kind == "int" else ""
        known = "" if self.fact is None else f" is {self.fact}"
        written = " written" if self.is_written else ""
        seen = "" if self.map is None else f" {self.map.text()}"
        return f"{self.kind} {self.name}{declared} = {self.value}{seen}{mask}{known}{written}"

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The expressions that each call evaluates for it."""
        own = (self.value,) if isinstance(self.value, Expr) else ()
        return own if self.map is None else (*own, *self.map.shape, *self.map.strides)

    @property
    def key(self) -> ChoiceKey | None:
        """What its fact depends on at a call; None where nothing does."""
        if self.kind == "choice" and isinstance(self.value, Expr):
            return ChoiceKey(self.value)
        is_open = self.kind == "int" and not isinstance(self.value, Const) and self.mask
        return (
            ChoiceKey(self.value, self.mask) if is_open and isinstance(self.value, Expr) else None
        )


@dataclass(frozen=True)
class ChoiceKey:
    """An integer by which a call chooses an entry: by its number, or by its fact under ``mask``."""

    value: Expr
    mask: int | None = None

    def word(self, number: int) -> int:
        """The key word for a call where the value is ``number``."""
        return number if self.mask is None else fact_of(number, self.mask)


@dataclass(frozen=True)
class Extern:
    """One launch of a foreign kernel: the kernel ``name`` on ``grid``, of 1 to 3 extents.

    ``parts`` are the functions and values that the kernel is made of, each with its digest.
    ``options`` are those of its compiler and of the launch. ``after`` is the number of the
    program's tile launches ahead of it.
    """

    language: str
    name: str
    parts: tuple[tuple[str, str], ...]
    grid: tuple[Expr, ...]
    args: tuple[ExternArg, ...]
    options: tuple[tuple[str, str], ...] = ()
    after: int = 0
    loc: Location | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def digest(self) -> str:
        """What tells the kernel from every other one, as 64 hexadecimal digits."""
        return digest_of_parts(self.language, self.name, self.parts)

    def lines(self) -> Iterator[str]:
        """The canonical text."""
        options = "".join(f" {name}={value}" for name, value in self.options)
        yield f"extern {self.language} {self.name} in [{comma_separated(self.grid)}]{options}:"
        for name, digest in self.parts:
            yield f"  made of {name} {digest}"  # the cache names what changed by these lines
        for arg in self.args:
            yield f"  {arg.text()}"

    def buffers(self) -> tuple[Buffer, ...]:
        """The tensors that the kernel gets."""
        return tuple(a.value for a in self.args if isinstance(a.value, Buffer))

    def written_buffers(self) -> tuple[Buffer, ...]:
        """The tensors that the kernel may write."""
        return tuple(a.value for a in self.args if a.is_written and isinstance(a.value, Buffer))

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        if not 1 <= len(self.grid) <= 3:
            yield f"a grid of {len(self.grid)} extents"
        for arg in self.args:
            if arg.kind not in ARG_KINDS:
                yield f"{arg.name} is an argument of the unknown kind {arg.kind!r}"
            if (arg.kind in _OF_TENSORS) != isinstance(arg.value, Buffer):
                yield f"{arg.name} is a {arg.kind} and its value is {arg.value}"
            if (arg.kind == "descriptor") != (arg.map is not None):
                yield f"{arg.name} is a {arg.kind} and its map is {arg.map}"
        for buffer in self.buffers():
            if buffer.is_on_chip:
                yield f"{buffer.name} is an argument and on chip"


def digest_of_parts(language: str, name: str, parts: Sequence[tuple[str, str]]) -> str:
    """The digest of a kernel from those of its parts."""
    return hashlib.sha256(repr((language, name, tuple(parts))).encode()).hexdigest()


def choice_keys(program: Program) -> tuple[ChoiceKey, ...]:
    """What the open facts of the program depend on, each once."""
    keys = (arg.key for extern in program.externs for arg in extern.args)
    return tuple(dict.fromkeys(key for key in keys if key is not None))


def with_words(program: Program, words: Sequence[int]) -> Program:
    """The program under the facts that ``words`` give, one for each of its choice keys."""
    known = dict(zip(choice_keys(program), words, strict=True))

    def filled(arg: ExternArg) -> ExternArg:
        return arg if arg.key is None else replace(arg, fact=known[arg.key])

    externs = tuple(replace(e, args=tuple(map(filled, e.args))) for e in program.externs)
    return replace(program, externs=externs)


def words_of(program: Program) -> tuple[int, ...]:
    """The facts that a program assumes, one for each of its choice keys."""
    found = {a.key: a.fact for e in program.externs for a in e.args if a.key is not None}
    words = [found[key] for key in choice_keys(program)]
    assert all(word is not None for word in words), "the facts of the program are open"
    return tuple(word for word in words if word is not None)


def without_ones(program: Program) -> Program:
    """The program in which no argument is assumed to be 1: it is passed like another number."""

    def weakened(arg: ExternArg) -> ExternArg:
        return replace(arg, fact=0) if arg.kind == "int" and arg.fact == ONE else arg

    externs = tuple(replace(e, args=tuple(map(weakened, e.args))) for e in program.externs)
    return replace(program, externs=externs)


def declared_written(program: Program, names: frozenset[str]) -> Program:
    """The program whose foreign kernels may write the parameters of these names."""
    ids = {p.buffer.id for p in program.tensors() if p.name in names}

    def marked(arg: ExternArg) -> ExternArg:
        is_named = isinstance(arg.value, Buffer) and arg.value.id in ids
        return replace(arg, is_written=True) if is_named else arg

    externs = tuple(replace(e, args=tuple(map(marked, e.args))) for e in program.externs)
    return replace(program, externs=externs)
