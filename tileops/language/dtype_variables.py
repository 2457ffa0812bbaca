"""Dtype variables: dtypes that each call decides by the dtypes of its tensors."""

from __future__ import annotations

from tileops.dtypes import DType, by_storage, is_dtype_like
from tileops.errors import (
    ArgumentTypeError,
    NoBuilderError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.language.tracer import DeclaredDType, Tracer, active_tracer
from tileops.language.value import Value, as_dtype, dtype

__all__ = ["DTypeVar"]


class OpenDType:
    """A dtype variable made outside a program; inside each program that uses it, a dtype.

    There it behaves as the dtype that the call has: it compares, hashes and prints as that one,
    has its attributes, and converts values.
    """

    __slots__ = ("dtypes", "name")

    def __init__(self, name: str, dtypes: tuple[DType, ...]) -> None:
        self.name = name
        self.dtypes = dtypes

    def declare(self, tracer: Tracer) -> DeclaredDType:
        """Note that the running trace uses this variable; an error if it may not."""
        if tracer.dtypes is None:
            raise UnsupportedConstructError(
                f"the dtype variable `{self.name}` in a T.prim_func: its tensors are known only "
                "once it is compiled",
                expected="an eager program, or a parameter of the function around the T.prim_func, "
                "such as dtype=T.float16",
            )
        known = tracer.dtype_variables.get(self.name)
        if known is None:
            known = DeclaredDType(self.dtypes, tracer.location)
            tracer.dtype_variables[self.name] = known
        elif known.dtypes != self.dtypes:
            raise ProgramValueError(
                f"two dtype variables of one program have the name `{self.name}`",
                expected=", ".join(known.dtypes),
                found=", ".join(self.dtypes),
            )
        return known

    def value_in(self, tracer: Tracer) -> DType | None:
        """The dtype in a trace; None if no given argument tells it."""
        self.declare(tracer)
        assert tracer.dtypes is not None
        return tracer.dtypes.get(self.name, self.dtypes[0])

    def now(self) -> dtype:
        """The dtype in the running trace; an error outside one."""
        tracer = active_tracer()
        if tracer is None:
            raise NoBuilderError(
                f"the dtype variable `{self.name}` was used outside a program, where it is not a "
                "dtype; use it in a function decorated with @tileops.jit"
            )
        found = self.value_in(tracer)
        if found is None:
            raise ProgramValueError(
                f"the dtype variable `{self.name}` has no value: no argument that the call gives "
                "has it",
                expected="its use where a tensor with it `is not None`",
            )
        return dtype(found)

    def __str__(self) -> str:
        return repr(self) if active_tracer() is None else str(self.now())

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __repr__(self) -> str:
        return f"T.DTypeVar({', '.join(map(repr, (self.name, *map(str, self.dtypes))))})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OpenDType):
            inside = active_tracer() is not None
            return self is other or (inside and self.now() == other.now())
        if not isinstance(other, str) and not is_dtype_like(other):
            return NotImplemented
        return self.now() == other

    def __hash__(self) -> int:
        return id(self) if active_tracer() is None else hash(self.now())

    def __call__(self, value: object = None, *more: object) -> Value:
        """``value`` converted to the dtype."""
        return self.now()(value, *more)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or active_tracer() is None:
            raise AttributeError(f"{self!r} has no attribute {name!r} outside a program")
        return getattr(self.now(), name)

    def __reduce__(self) -> tuple[object, ...]:
        return OpenDType, (self.name, self.dtypes)


class BoundDType(dtype):
    """The dtype that a dtype variable made inside a program has in the running trace."""

    __slots__ = ("variable",)
    variable: OpenDType


def DTypeVar(name: str, *dtypes: object) -> OpenDType | BoundDType:
    """A dtype that each call decides: ``dt = T.DTypeVar("dt", T.float16, T.bfloat16)``.

    A tensor parameter annotated with it, ``A: T.Tensor((M, N), dt)``, takes each of ``dtypes``; all
    tensors with it have the same one in a call. Each dtype is a program of its own, compiled when
    first called, in which ``dt`` is that dtype: it may be used wherever a dtype may, and Python's
    ``if dt == T.float16`` is decided when the program is traced. Made inside the program, at module
    level or in a function around it; some tensor parameter must have it.

    ProgramTypeError for no dtypes, for anything but a dtype, and for two dtypes that torch stores
    alike (int4 and int8); ProgramValueError for a name that is not an
    identifier, or is that of a dtype.
    """
    if not isinstance(name, str) or not name.isidentifier() or is_dtype_like(name):
        raise ProgramValueError(
            "T.DTypeVar takes a name first, then the dtypes",
            expected='an identifier, as in T.DTypeVar("dt", T.float16, T.bfloat16)',
            found=repr(name),
        )
    kinds = tuple(DType(as_dtype(d)) for d in dtypes)
    if not kinds:
        raise ProgramTypeError(
            f"T.DTypeVar({name!r}) without the dtypes that it may be",
            expected=f'one or more, as in T.DTypeVar("{name}", T.float16, T.bfloat16)',
        )
    try:
        by_storage(kinds)
    except ArgumentTypeError as error:
        raise ProgramTypeError(f"T.DTypeVar({name!r}): {error}") from None
    made = OpenDType(name, kinds)
    tracer = active_tracer()
    value = None if tracer is None else made.value_in(tracer)
    if value is None:
        return made
    bound = BoundDType(value)
    bound.variable = made
    return bound


def variable_of(value: object) -> OpenDType | None:
    """The dtype variable behind what a program calls a dtype; None for a plain dtype."""
    if isinstance(value, BoundDType):
        return value.variable
    return value if isinstance(value, OpenDType) else None
