"""The parameters of a running trace: annotations become tensors and scalars, in order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

from tileops.dtypes import DType, is_dtype_like
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import walk
from tileops.ir.expr import Expr, Var
from tileops.ir.program import DTypeVariable, ScalarParam, TensorParam
from tileops.language.allocation import check_packed, leading_shape
from tileops.language.buffers import BufferRef
from tileops.language.missing import UnsupportedName
from tileops.language.parameter_types import PointerType, TensorType, not_a_type, variable_of
from tileops.language.tracer import Tracer
from tileops.language.value import Value, as_dtype, index_expr
from tileops.language.views import Pointer
from tileops.location import Location


class Undeclared:
    """A tensor parameter before its annotation in the body ran."""

    def __init__(self, name: str) -> None:
        self.name = name

    def describe(self) -> str:
        """The parameter, for error messages."""
        return f"the parameter `{self.name}` before its annotation"

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        raise ProgramValueError(
            f"the parameter `{self.name}` is used before its annotation `{self.name}: ...`"
        )

    __getitem__ = __setitem__ = __call__ = __iter__ = __len__ = __contains__ = _refuse
    __bool__ = __int__ = __float__ = __index__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __lshift__ = __rshift__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __neg__ = __pos__ = __invert__ = __abs__ = _refuse


class Parameters:
    """Collects what annotations declare; ``order`` are the names that a call passes."""

    def __init__(self, tracer: Tracer, order: Sequence[str], absent: Collection[str] = ()) -> None:
        """``absent`` are optional tensors that the call leaves out: None to the program."""
        self._tracer = tracer
        self._order = tuple(order)
        self._absent = frozenset(absent)
        self._declared: dict[str, TensorParam | ScalarParam] = {}
        # Of names that stand for None, why.
        self.nones = {
            name: f"`{name}` is None, for this call leaves it out; use it under "
            f"`if {name} is not None`"
            for name in absent
        }

    def declare(self, name: str, annotation: object) -> object:
        """Handle ``name: annotation``; returns what ``name`` is from then on."""
        tracer = self._tracer
        if name in self._absent:
            if isinstance(annotation, TensorType) and annotation.variable is not None:
                annotation.variable.declare(tracer).params.append(name)
            return None
        if variable_of(annotation) is not None:
            raise ProgramTypeError(
                f"the scalar parameter `{name}` cannot have a dtype variable: a call passes a "
                "Python number, which has no dtype",
                expected="the dtype of a scalar, such as T.float32; T.cast converts its value",
            )
        if name not in self._order:
            raise ProgramTypeError(
                f"`{name}` is annotated but is not a run-time parameter of the program"
            )
        if name in self._declared:
            raise ProgramValueError(
                f"the parameter `{name}` is annotated twice", location=tracer.location
            )
        if tracer.launch is not None:
            raise ProgramValueError(
                f"the annotation of `{name}` goes before `with T.Kernel`, not inside"
            )
        if isinstance(annotation, TensorType):
            return self._tensor(name, annotation)
        if isinstance(annotation, PointerType):
            return self._pointer(name)
        if isinstance(annotation, UnsupportedName):
            raise annotation.error()
        if is_dtype_like(annotation):
            return self._scalar(name, annotation)
        raise not_a_type(name, annotation)

    def _scalar(self, name: str, annotation: object) -> Value:
        tracer = self._tracer
        kind = as_dtype(annotation)
        if kind.bits < 8 or (kind.is_float and kind.bits < 16):
            raise ProgramTypeError(
                f"the scalar parameter `{name}` cannot be {kind}: a call passes Python numbers",
                expected="an integer, bool or float dtype that a kernel parameter can have",
            )
        var = tracer.define(tracer.new_var(name, DType(kind)), permanent=True)
        self._declared[name] = ScalarParam(name, var, loc=tracer.location)
        return Value(var)

    def _tensor(self, name: str, annotation: TensorType) -> BufferRef:
        tracer = self._tracer
        if annotation.scope != "global":
            raise ProgramTypeError(
                f"the parameter `{name}` must be a tensor in global memory",
                found=f"scope {annotation.scope!r}",
            )
        what, kind, variable = f"the tensor `{name}`", annotation.dtype, annotation.variable
        if variable is not None:
            variable.declare(tracer).params.append(name)
            kind = as_dtype(variable.now())
        shape: tuple[Expr, ...] = ()
        leading = False
        if annotation.shape:
            leading, shape = leading_shape(tracer, what, annotation.shape)
        strides = None
        if annotation.strides is not None:
            strides = tuple(self._stride(name, s) for s in annotation.strides)
        check_packed(what, shape[leading:], kind, strides)
        buffer = tracer.new_buffer(name, shape, kind, "global", strides)
        tracer.define(buffer, permanent=True)
        self._declared[name] = TensorParam(name, buffer, leading=leading, loc=tracer.location)
        return BufferRef(buffer)

    def _stride(self, name: str, stride: object) -> Expr:
        if stride is Ellipsis:
            raise ProgramValueError(
                f"`...` in the strides of the tensor `{name}`",
                expected="one stride for all leading dimensions, such as a T.dynamic size",
            )
        return index_expr(stride, f"a stride of `{name}`")

    def _pointer(self, name: str) -> Pointer:
        tracer = self._tracer
        buffer = tracer.new_buffer(name, (), DType("uint8"), "global")
        tracer.define(buffer, permanent=True)
        self._declared[name] = TensorParam(name, buffer, raw=True, loc=tracer.location)
        return Pointer(buffer)

    def finish(self) -> None:
        """Put the parameters into the program."""
        for name in self._order:
            if name in self._declared:
                self._tracer.params.append(self._declared[name])
            else:
                raise ProgramTypeError(
                    f"the parameter `{name}` has no annotation that ran; write `{name}: "
                    "T.Tensor(shape, dtype)` before T.Kernel"
                )


def check_sizes(tracer: Tracer, function: Location | None) -> None:
    """Refuse size constants that are not in a shape, and dynamic sizes that no input has."""
    _check_leading(tracer)
    entries: list[Expr] = []
    for param in tracer.params:
        if isinstance(param, TensorParam) and not param.allocated:
            entries += [*param.buffer.shape, *(param.buffer.strides or ())]
    direct = {e.id for e in entries if isinstance(e, Var)}
    reachable = _variables(entries)
    kept = []
    for size in tracer.sizes:
        name, where = size.var.name, tracer.const_locations.get(size.var.id, function)
        if size.kind == "const" and size.var.id not in direct:
            raise ProgramValueError(
                f"the size constant `{name}` is not an entry of any tensor's shape or strides, so "
                "no call can tell its value",
                location=where,
            )
        if size.kind == "dynamic" and size.var.id not in reachable:
            if size.var.id in _used_sizes(tracer):
                raise ProgramValueError(
                    f"the size `{name}` (T.dynamic) is in no input tensor's shape or strides, so "
                    "no call can tell its value",
                    location=where,
                )
            continue
        kept.append(size)
    tracer.sizes = kept


def _check_leading(tracer: Tracer) -> None:
    """Refuse leading dimensions that no input tells, and another size of that name."""
    if tracer.leading is None:
        return
    names = [s.var.name for s in tracer.sizes] + list(tracer.consts or ())
    if names.count(tracer.leading.name) > 1:
        raise ProgramValueError(
            f"the size name `{tracer.leading.name}` belongs to the product of the dimensions "
            "that `...` stands for; choose another name"
        )
    params = [p for p in tracer.params if isinstance(p, TensorParam)]
    made = [p for p in params if p.allocated and p.leading]
    if made and not any(p.leading for p in params if not p.allocated):
        raise ProgramValueError(
            f"the leading dimensions of the output `{made[0].name}` are those of no tensor that a "
            "call gives",
            expected="a tensor parameter whose shape begins with `...`",
            location=made[0].loc,
        )


def dtype_variables(tracer: Tracer, parameters: Collection[str]) -> tuple[DTypeVariable, ...]:
    """The dtype variables of the trace, each with the parameters that tell it.

    ``parameters`` are all names that the program's function takes.
    """
    order = list(parameters)
    sizes = {s.var.name for s in tracer.sizes} | set(tracer.consts or ())
    found = []
    for name, declared in tracer.dtype_variables.items():
        if name in order or name in sizes:
            raise ProgramValueError(
                f"the dtype variable `{name}` has the name of a "
                f"{'parameter' if name in order else 'size'}; choose another name",
                location=declared.loc,
            )
        if not declared.params:
            raise ProgramValueError(
                f"the dtype variable `{name}` is the dtype of no tensor parameter, so no call can "
                "tell it",
                location=declared.loc,
            )
        params = tuple(sorted(declared.params, key=order.index))
        found.append(DTypeVariable(name, declared.dtypes, params))
    return tuple(sorted(found, key=lambda v: order.index(v.params[0])))


def _used_sizes(tracer: Tracer) -> set[int]:
    """The variables that outputs, workspaces, grids and statements read."""
    exprs: list[Expr] = []
    for param in tracer.params:
        if isinstance(param, TensorParam):
            exprs += param.buffer.shape
    for buffer in tracer.workspaces:
        exprs += buffer.shape
    for stmt in walk.walk(tuple(tracer.launches)):
        exprs += walk.exprs(stmt)
    return _variables(exprs)


def _variables(exprs: Sequence[Expr]) -> set[int]:
    return {e.id for x in exprs for e in walk.walk_expr(x) if isinstance(e, Var)}
