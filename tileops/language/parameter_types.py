"""The types of parameters: T.Tensor, T.StridedTensor, T.ptr, T.Ref, and dtype variables."""

from __future__ import annotations

from dataclasses import dataclass

from tileops.dtypes import DType, by_storage, is_dtype_like
from tileops.errors import (
    ArgumentTypeError,
    NoBuilderError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.language.buffers import BufferRef
from tileops.language.tracer import DeclaredDType, Tracer, active_tracer
from tileops.language.value import INT64, Value, as_dtype, as_tuple, dtype
from tileops.language.views import make_view, strides_of

__all__ = [
    "DTypeVar",
    "FragmentBuffer", "LocalBuffer", "Ref", "SharedBuffer", "StridedTensor", "Tensor", "Var",
    "ptr",
]  # fmt: skip


class PointerType:
    """``T.ptr``: as a parameter's annotation any tensor, whose address alone is taken.

    As a dtype, ``T.Tensor((n,), T.ptr)``, it makes a table of addresses: an int64 tensor.
    """

    def __call__(
        self, dtype: object = None, storage_scope: str = "global", *, is_size_var: bool = False
    ) -> PointerType:
        """The same; the element type is what T.make_tensor says. ProgramTypeError off global."""
        if storage_scope != "global":
            raise ProgramTypeError("T.ptr points to global memory", found=repr(storage_scope))
        return self

    def __repr__(self) -> str:
        return "T.ptr"


ptr = PointerType()


# -- dtype variables -------------------------------------------------------------------------------
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


# -- tensors ---------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class TensorType:
    """The type of a tensor parameter; without ``strides`` it is row-major and contiguous.

    ``variable`` is the dtype variable that the dtype is to be taken from, if there is one; outside
    a program ``dtype`` is then the first that it may be.
    """

    shape: tuple[object, ...]
    dtype: DType
    strides: tuple[object, ...] | None = None
    scope: str = "global"
    variable: OpenDType | None = None

    def describe(self) -> str:
        """The text in error messages."""
        return f"T.Tensor({self.shape}, {self.dtype})"


def _dtype(value: object) -> DType:
    variable = variable_of(value)
    if variable is not None:
        return variable.dtypes[0]  # what a trace asks the variable for
    return INT64 if isinstance(value, PointerType) else as_dtype(value)


class _TensorFactory:
    """``T.Tensor(shape, dtype)``, ``T.Tensor[(M, N), dtype]`` and ``T.Tensor[M, N]``."""

    def __init__(self, scope: str) -> None:
        self._scope = scope

    def __call__(
        self,
        shape: object,
        dtype: object = "float32",
        data: object = None,
        scope: str | None = None,
    ) -> TensorType | BufferRef:
        """The type of a row-major tensor; with ``data`` another view of a buffer's storage.

        ``shape`` may begin with ``...``, for any number of leading dimensions: in the program they
        are one, of their product. ``dtype`` may be a ``T.DTypeVar``.
        """
        if data is not None:
            kind = INT64 if isinstance(dtype, PointerType) else as_dtype(dtype)
            return make_view(data, shape, kind)
        return TensorType(
            as_tuple(shape), _dtype(dtype), None, scope or self._scope, variable_of(dtype)
        )

    def __getitem__(self, key: object) -> TensorType | BufferRef:
        if isinstance(key, tuple) and len(key) == 2:
            shape, dtype = key
            is_dtype = isinstance(dtype, (PointerType, OpenDType)) or is_dtype_like(dtype)
            if is_dtype or isinstance(shape, (tuple, list)):
                return self(shape, dtype)
        return self(key)


Tensor = _TensorFactory("global")
SharedBuffer = _TensorFactory("shared")
FragmentBuffer = _TensorFactory("fragment")
LocalBuffer = _TensorFactory("local")


class _StridedFactory:
    """``T.StridedTensor(shape, strides, dtype)`` and ``T.StridedTensor[shape, strides, dtype]``."""

    def __call__(
        self, shape: object, strides: object, dtype: object = "float32", scope: str | None = None
    ) -> TensorType:
        """The type of a tensor parameter with given strides, in elements; one a dimension.

        The leading dimensions of ``...`` have one stride, that of their last one.
        """
        dims = as_tuple(shape)
        steps = strides_of("T.StridedTensor", dims, strides)
        kind = as_dtype(dtype) if variable_of(dtype) is None else _dtype(dtype)
        return TensorType(dims, kind, steps, scope or "global", variable_of(dtype))

    def __getitem__(self, key: object) -> TensorType:
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise ProgramTypeError(
                "T.StridedTensor[...] takes a shape, strides and a dtype", found=repr(key)
            )
        return self(*key)


StridedTensor = _StridedFactory()


class _RefAnnotation:
    """``T.Ref``: a macro's parameter that is passed by reference (a variable, element or slice)."""

    def __getitem__(self, key: object) -> _RefAnnotation:
        return self


Ref = _RefAnnotation()


class _VarType(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Value)


class Var(metaclass=_VarType):
    """The type of variables; as annotation of a macro's parameter an older name of ``T.Ref``.

    Unlike there, a value that cannot be assigned to, such as a loop's variable, is passed too.
    """


def not_a_type(name: str, value: object) -> ProgramTypeError:
    """The error for the annotation of parameter ``name``, which is not a type."""
    if isinstance(value, (_TensorFactory, _StridedFactory)):
        return ProgramTypeError(
            f"the annotation of `{name}` needs a shape, as in T.Tensor((M, N), T.float16)"
        )
    return ProgramTypeError(
        f"the annotation of `{name}` is not a type of the tile language",
        expected="T.Tensor(...), T.StridedTensor(...) or a scalar dtype such as T.int32",
        found=repr(value),
    )
