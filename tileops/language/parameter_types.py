"""The annotations of parameters: T.Tensor, T.StridedTensor, T.ptr, T.Ref and the like."""

from __future__ import annotations

from dataclasses import dataclass

from tileops.dtypes import DType, is_dtype_like
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.language.buffers import BufferRef
from tileops.language.dtype_variables import OpenDType, variable_of
from tileops.language.value import INT64, Value, as_dtype
from tileops.language.views import make_view

__all__ = [
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
        """The annotation as a user would write it, for error messages."""
        return f"T.Tensor({self.shape}, {self.dtype})"


def _dims(shape: object) -> tuple[object, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


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
            _dims(shape), _dtype(dtype), None, scope or self._scope, variable_of(dtype)
        )

    def __getitem__(self, key: object) -> TensorType | BufferRef:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], (tuple, list)):
            return self(key[0], key[1])
        if (
            isinstance(key, tuple)
            and len(key) == 2
            and (isinstance(key[1], (PointerType, OpenDType)) or is_dtype_like(key[1]))
        ):
            return self(key[0], key[1])
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
        dims, steps = _dims(shape), _dims(strides)
        if len(dims) != len(steps):
            raise ProgramValueError(
                "T.StridedTensor needs one stride a dimension",
                expected=f"{len(dims)} strides",
                found=f"{len(steps)}",
            )
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


def require_tensor_type(name: str, value: object) -> TensorType:
    """The annotation of parameter ``name``; ProgramTypeError for anything but a tensor type."""
    if isinstance(value, TensorType):
        return value
    if isinstance(value, (_TensorFactory, _StridedFactory)):
        raise ProgramTypeError(
            f"the annotation of `{name}` needs a shape, as in T.Tensor((M, N), T.float16)"
        )
    raise ProgramTypeError(
        f"the annotation of `{name}` is not a type of the tile language",
        expected="T.Tensor(...), T.StridedTensor(...) or a scalar dtype such as T.int32",
        found=repr(value),
    )
