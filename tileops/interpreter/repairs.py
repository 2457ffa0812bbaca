"""Repairs of Triton's interpreter: each fault that makes it compute otherwise than a GPU.

Every repair has a test that runs the interpreter without it and expects the fault, so that a
repair that Triton no longer needs is noticed and removed.
"""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as ti

from tileops.interpreter.assembly import inline_asm_elementwise
from tileops.interpreter.rounding import rounded

Array = np.ndarray[Any, Any]

_NARROW = {"bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
# Largest finite values: the conversion instructions of GPUs saturate fp8.
_SATURATE = {"fp8e4nv": 448.0, "fp8e5": 57344.0}


def _is_narrow(dtype: Any) -> bool:
    return str(dtype.scalar) in _NARROW


def widen(data: Array, dtype: Any) -> Array:
    """Bits of bf16 or fp8 as float32, exactly; other data unchanged."""
    if not _is_narrow(dtype):
        return data
    bits = torch.from_numpy(np.ascontiguousarray(data).copy())
    wide: Array = bits.view(_NARROW[str(dtype.scalar)]).float().numpy()
    out: Array = wide.reshape(data.shape)
    return out


def as_torch(value: Any, tensors: Mapping[int, torch.Tensor]) -> torch.Tensor:
    """A value of a kernel as a tensor; a pointer gives the one of ``tensors`` at its address."""
    if not isinstance(value, tl.tensor):
        return torch.tensor(getattr(value, "value", value))
    data = np.ascontiguousarray(value.handle.data)
    if value.dtype.scalar.is_ptr():
        return tensors[int(data.reshape(-1)[0])]
    row = torch.from_numpy(data.astype(np.bool_) if value.dtype.scalar.is_int1() else data.copy())
    return row.view(_NARROW[str(value.dtype.scalar)]) if _is_narrow(value.dtype) else row


def narrow(data: Array, dtype: Any) -> Array:
    """Values rounded once to bf16 or fp8, as bits; to other dtypes by numpy."""
    name = str(dtype.scalar)
    if name not in _NARROW:
        out: Array = data.astype(ti._get_np_dtype(dtype))
        return out
    if data.dtype.itemsize > 2 and data.dtype != np.float32:
        data = _odd_float32(data)
    if name in _SATURATE:
        data = np.clip(data, -_SATURATE[name], _SATURATE[name])
    values = torch.from_numpy(np.ascontiguousarray(data).copy())
    bits = values.to(_NARROW[name]).view(torch.uint16 if name == "bf16" else torch.uint8)
    result: Array = bits.numpy().reshape(data.shape)
    return result


def _integers(data: Array) -> Array:
    """Whole numbers as Python's integers, which compare exactly."""
    out: Array = np.array([int(x) for x in data.reshape(-1)], object).reshape(data.shape)
    return out


def _cut_float32(data: Array) -> tuple[Array, Array]:
    """Numbers as float32 rounded towards zero, and where that lost nothing."""
    near = data.astype(np.float32)
    has_float64 = data.dtype.kind == "f" or data.dtype.itemsize < 8
    exact = data.astype(np.float64) if has_float64 else _integers(data)
    found = near.astype(np.float64) if has_float64 else _integers(near)
    is_away = (np.abs(found) > np.abs(exact)).astype(np.bool_)
    cut = np.where(is_away, np.nextafter(near, np.float32(0)), near)
    return cut, (found == exact).astype(np.bool_)


def _odd_float32(data: Array) -> Array:
    """Numbers as float32 that round to a narrower float as they would themselves."""
    cut, is_exact = _cut_float32(data)
    bits = cut.view(np.uint32)
    return np.where(is_exact, bits, bits | np.uint32(1)).view(np.float32)


# -- casts -------------------------------------------------------------------------------------
def _cast(self: Any, src: Any, dst_type: Any) -> Any:
    wide = widen(src.data, src.dtype)
    if dst_type.scalar.is_int() and wide.dtype.kind == "f":
        wide = _whole(wide, ti._get_np_dtype(dst_type))
    return ti.TensorHandle(narrow(wide, dst_type), dst_type.scalar)


def _whole(data: Array, to: Any) -> Array:
    """Floats as integers as a GPU's instructions make them, which have 32 or 64 bits: bounded."""
    if to == np.bool_:
        return np.trunc(data)
    unsigned, bits = to.kind == "u", max(32, 8 * to.itemsize)
    wide = np.dtype(f"{'u' if unsigned else ''}int{bits}")
    least, most = (np.array(end, wide) for end in (np.iinfo(wide).min, np.iinfo(wide).max))
    out = np.where(data <= least, least, np.trunc(data).astype(wide))
    # As a float the upper bound is a power of two: one past the greatest value.
    out = np.where(data >= np.float64(2.0) ** (bits - (not unsigned)), most, out)
    is_wide = bits == 64 or data.dtype == np.float64
    nan = np.array(1 << (bits - 1), np.uint64).astype(wide) if is_wide else np.array(0, wide)
    return np.where(np.isnan(data), nan, out).astype(to)


def _fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
    if str(rounding_mode).rpartition(".")[2] != "RTZ":
        return _cast(self, src, dst_type)
    if dst_type.scalar != tl.float16:
        raise NotImplementedError(f"a conversion to {dst_type.scalar} that cuts")
    wide = widen(src.data, src.dtype)
    near = wide.astype(np.float16)
    is_away = np.abs(near.astype(wide.dtype)) > np.abs(wide)
    cut = np.where(is_away, np.nextafter(near, np.float16(0)), near)
    return ti.TensorHandle(cut, dst_type.scalar)


# -- assertions --------------------------------------------------------------------------------
def _assert(self: Any, condition: Any, message: str) -> Any:
    if not np.all(condition.data):
        raise AssertionError(message)


# -- arithmetic --------------------------------------------------------------------------------
_binary_op = ti.InterpreterBuilder.binary_op
_unary_op = ti.InterpreterBuilder.unary_op


def _binary(self: Any, lhs: Any, rhs: Any, op: Callable[..., Array]) -> Any:
    if not _is_narrow(lhs.dtype) or op in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
        return _binary_op(self, lhs, rhs, op)
    output = op(widen(lhs.data, lhs.dtype), widen(rhs.data, rhs.dtype))
    if output.dtype == np.bool_:
        return ti.TensorHandle(output, tl.int1)
    return ti.TensorHandle(narrow(output, lhs.dtype), lhs.dtype.scalar)


def _unary(self: Any, arg: Any, op: Callable[..., Array]) -> Any:
    if not _is_narrow(arg.dtype):
        return _unary_op(self, arg, op)
    return ti.TensorHandle(narrow(op(widen(arg.data, arg.dtype)), arg.dtype), arg.dtype.scalar)


# -- shapes ------------------------------------------------------------------------------------
_create_splat = ti.InterpreterBuilder.create_splat


def _bf16(self: Any, value: float) -> Any:
    """A literal in bf16, rounded once."""
    return ti.TensorHandle(narrow(np.array([value], np.float64), tl.bfloat16), tl.bfloat16)


def _sum(self: Any, values: Any) -> Any:
    """A sum in bf16 adds values, not their bits; it is rounded once."""
    data = widen(values.handle.data, values.dtype)
    total = np.sum(data, axis=self.axis, keepdims=self.keep_dims)
    if _is_narrow(values.dtype):
        total = narrow(np.asarray(total), values.dtype)[()]
    return self.to_tensor(total, values.dtype)


def _splat(self: Any, ret_ty: Any, arg: Any) -> Any:
    """A scalar condition as a tile stays boolean: loads and stores refuse any other mask."""
    out = _create_splat(self, ret_ty, arg)
    if arg.data.dtype == np.bool_:  # a comparison's handle keeps its operands' dtype
        return ti.TensorHandle(out.data.astype(np.bool_), out.dtype.scalar)
    return out


# -- dot ---------------------------------------------------------------------------------------
def _dot(
    self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any
) -> Any:
    left, right = widen(a.data, a.dtype), widen(b.data, b.dtype)
    if left.dtype == np.float16 and d.data.dtype == np.float16:
        # Products of halves are exact in float32; the accumulator is rounded once, as the hardware
        # does.
        total = np.matmul(left.astype(np.float32), right.astype(np.float32)) + d.data
        return ti.TensorHandle(total.astype(np.float16), d.dtype.scalar)
    work = d.data.dtype
    product = np.matmul(left.astype(work), right.astype(work))
    return ti.TensorHandle(product + d.data, d.dtype.scalar)


# -- atomics -----------------------------------------------------------------------------------
_atomic_rmw = ti.InterpreterBuilder.create_atomic_rmw


def _atomic(self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
    if not _is_narrow(val.dtype) or str(op).rpartition(".")[2] != "FADD":
        return _atomic_rmw(self, op, ptr, val, mask, sem, scope)
    pointers, values, masks = np.broadcast_arrays(ptr.data, val.data, mask.data)
    before = np.zeros(pointers.shape, dtype=val.data.dtype)
    # One element after the other, so that several lanes may add to one address.
    for at in np.ndindex(pointers.shape):
        if not masks[at]:
            continue
        one = ti.TensorHandle(np.array([pointers[at]]), ptr.dtype)
        yes = ti.TensorHandle(np.array([True]), tl.int1)
        old = self.create_masked_load(one, yes, None, None, False)
        total = widen(old.data, val.dtype) + widen(np.array([values[at]]), val.dtype)
        self.create_masked_store(
            one, ti.TensorHandle(narrow(total, val.dtype), val.dtype), yes, None
        )
        before[at] = old.data[0]
    return ti.TensorHandle(before, val.dtype.scalar)


# -- loops -------------------------------------------------------------------------------------
def loop(start: Any, stop: Any = None, step: Any = 1, **_: Any) -> Iterator[Any]:
    """The numbers of a loop as scalars: as Python's ints they divide and wrap otherwise.

    They are int32, or int64 where a bound is.
    """
    if stop is None:
        start, stop = 0, start
    is_wide = any(getattr(x, "dtype", None) == tl.int64 for x in (start, stop, step))
    kind, held = (tl.int64, np.int64) if is_wide else (tl.int32, np.int32)
    for value in range(int(start), int(stop), int(step)):
        yield tl.tensor(ti.TensorHandle(np.array([value], dtype=held), kind), kind)


def scalar(value: Any, kind: str) -> Any:
    """An argument of the type ``kind``, such as ``i64``, or ``f32``, which rounds it once."""
    if kind.startswith(("f", "bf")):
        dtype = tl.str_to_ty(kind.replace("f", "fp", 1) if kind[0] == "f" else kind, None)
        held = narrow(np.array([value], np.float64), dtype)
    elif kind[1:].isdigit() and kind not in ("i1", "i32"):
        dtype = tl.str_to_ty(kind, None)
        held = np.array([int(value)], f"{'u' if kind[0] == 'u' else ''}int{kind[1:]}")
    else:
        return value
    # The interpreter would choose the type by the value.
    return tl.tensor(ti.TensorHandle(held, dtype), dtype)


_patch_core = ti._patch_lang_core


def _patch_lang_core(lang: Any, scope: Any) -> None:
    _patch_core(lang, scope)
    scope.set_attr(lang, "range", loop)


# -- libdevice ---------------------------------------------------------------------------------
def _on_values(function: Callable[..., Array]) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        first = args[0]
        shape = np.broadcast_shapes(*(a.handle.data.shape for a in args))
        out = np.broadcast_to(np.asarray(function(*(a.handle.data for a in args))), shape)
        handle = ti.TensorHandle(out.astype(first.handle.data.dtype), first.dtype.scalar)
        kind = first.type if len(args) == 1 else _block(first, shape, first.dtype)
        return tl.tensor(handle, kind)

    return apply


def _block(first: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    if not isinstance(first.type, tl.block_type) and shape == (1,):
        return dtype
    return tl.block_type(dtype.scalar, list(shape))


def _in_double(function: Callable[..., Array]) -> Callable[..., Array]:
    """Evaluate in float64 and round once: within half a unit of the true value."""

    def apply(*args: Array) -> Array:
        return function(*(a.astype(np.float64) for a in args))

    return apply


def _round_half_away(a: Array) -> Array:
    return np.copysign(np.floor(np.abs(a) + 0.5), a)


def _of_bits(function: Callable[[int, int], int]) -> Callable[[Array], Any]:
    """A function of the bits of each integer and of their number."""

    def apply(a: Array) -> Any:
        width = 8 * a.dtype.itemsize
        bits = a.view(f"u{a.dtype.itemsize}").reshape(-1).tolist()
        return np.array([function(v, width) for v in bits], np.int32).reshape(a.shape)

    return apply


_popcount = _of_bits(lambda bits, width: bits.bit_count())
_leading_zeros = _of_bits(lambda bits, width: width - bits.bit_length())


def _towards_zero(a: Any) -> Any:
    """A tile or scalar as float32 rounded towards zero, of float64 without subnormal numbers."""
    cut = _cut_float32(a.handle.data)[0]
    cut = np.where(np.abs(cut) < np.float32(2.0**-126), np.copysign(np.float32(0), cut), cut)
    handle = ti.TensorHandle(cut, tl.float32)
    return tl.tensor(handle, _block(a, a.handle.data.shape, tl.float32))


_TOWARDS_ZERO = [f"{kind}2float_rz" for kind in ("double", "int", "uint", "ll", "ull")]
_LIBDEVICE: dict[str, Callable[..., Array]] = {
    **{
        name: _in_double(getattr(np, name))
        for name in ("exp", "log10", "log1p", "tan", "sinh", "cosh", "tanh")
    },
    **{f"a{name}": _in_double(getattr(np, f"arc{name}")) for name in ("sin", "cos", "tan", "tan2")},
    "exp10": _in_double(lambda a: np.power(10.0, a)),
    "pow": _in_double(np.power),
    "trunc": np.trunc,
    "rint": np.rint,
    "round": _in_double(_round_half_away),
    "copysign": np.copysign,
    "fmod": np.fmod,
    "popc": _popcount,
    "popcll": _popcount,
    "clz": _leading_zeros,
    "clzll": _leading_zeros,
    **{
        f"{op}_{mode}": rounded(f"{op}_{mode}")
        for op in ("add", "sub", "mul", "div", "fma", "sqrt")
        for mode in ("rn", "rz", "ru", "rd")
    },
    "rsqrt_rn": rounded("rsqrt_rn"),
}


# -- putting them in place ---------------------------------------------------------------------
@contextmanager
def repaired() -> Iterator[None]:
    """Run with every repair in place; all are taken back at the end."""
    from triton.language.extra import libdevice

    builder = ti.InterpreterBuilder
    # Assertions are skipped by default. Overflow is not a fault: integers wrap.
    asserting = dataclasses.replace(
        ti.interpreter_builder.options, debug=True, sanitize_overflow=False
    )
    changes: list[tuple[Any, str, Any]] = [
        (builder, "cast_impl", _cast),
        (builder, "create_fp_to_fp", _fp_to_fp),
        (builder, "binary_op", _binary),
        (builder, "unary_op", _unary),
        (builder, "create_dot", _dot),
        (builder, "create_splat", _splat),
        (builder, "get_bf16", _bf16),
        (builder, "create_atomic_rmw", _atomic),
        (ti.ReduceOps, "sum", _sum),
        (builder, "create_assert", _assert),
        (ti.interpreter_builder, "options", asserting),
        (ti, "_patch_lang_core", _patch_lang_core),
        (tl, "inline_asm_elementwise", inline_asm_elementwise),
    ]
    changes += [(libdevice, name, _on_values(f)) for name, f in _LIBDEVICE.items()]
    changes += [(libdevice, name, _towards_zero) for name in _TOWARDS_ZERO]
    with ExitStack() as stack:
        for target, name, value in changes:
            stack.enter_context(mock.patch.object(target, name, value, create=True))
        stack.enter_context(np.errstate(all="ignore"))
        yield
