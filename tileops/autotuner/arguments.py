"""Owns the checks of what users give to a tuning: its numbers, functions, devices and buckets."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tileops.autotuner.param import ProfileArgs
from tileops.errors import ArgumentError, ArgumentTypeError, TileopsError
from tileops.profiler import ALIASES, BACKENDS, TensorSupplyType

_FUNCTIONS = ("ref_prog", "supply_prog", "manual_check_prog")


def check_profile(profile: ProfileArgs) -> None:
    """ArgumentError or ArgumentTypeError naming the first field that cannot be meant."""
    for name, least in (("warmup", 0), ("rep", 1)):
        value = getattr(profile, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ArgumentTypeError(f"{name}: expected a number of runs, got {value!r}")
        if value < least:
            raise ArgumentError(f"{name}: expected {least} runs or more, got {value}")
    for name in ("timeout", "rtol", "atol"):
        number(name, getattr(profile, name), 0.0)
    number("max_mismatched_ratio", profile.max_mismatched_ratio, 0.0, 1.0)
    for name in _FUNCTIONS:
        function(name, getattr(profile, name))
    if not isinstance(profile.supply_type, TensorSupplyType):
        raise ArgumentTypeError(
            f"supply_type: expected a TensorSupplyType, got {profile.supply_type!r}"
        )
    known = (*BACKENDS, *ALIASES)
    if profile.backend not in known:
        raise ArgumentError(f"backend: expected one of {', '.join(known)}, got {profile.backend!r}")


def number(name: str, value: object, least: float, most: float = math.inf) -> None:
    """Refuse what is no number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentTypeError(f"{name}: expected a number, got {value!r}")
    if not least <= float(value) <= most:
        limit = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
        raise ArgumentError(f"{name}: expected {limit}, got {value!r}")


def function(name: str, value: object) -> None:
    """Refuse what is neither None nor can be called."""
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"{name}: expected a function, got {value!r}")


def check_devices(devices: object) -> None:
    """Refuse what is neither None, ``all`` nor a list of devices."""
    if devices is None or devices == "all":
        return
    if isinstance(devices, (list, tuple)):
        for device in devices:
            _device(device)
        return
    raise ArgumentError(f"devices: expected 'all' or a list of devices, got {devices!r}")


def _device(device: object) -> None:
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        raise ArgumentTypeError(f"devices: expected 'cuda:1', 1 or a torch.device, got {device!r}")
    try:
        torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except RuntimeError as error:
        raise ArgumentError(f"devices: {str(error).splitlines()[0]}") from None


def check_buckets(buckets: object) -> None:
    """Refuse what is neither None, a function, upper bounds, nor upper bounds by name."""
    if buckets is None or callable(buckets):
        return
    for name, bounds in buckets.items() if isinstance(buckets, Mapping) else [("", buckets)]:
        place = f"buckets[{name!r}]" if isinstance(buckets, Mapping) else "buckets"
        if isinstance(bounds, (str, Mapping)) or not isinstance(bounds, Sequence) or not bounds:
            raise ArgumentTypeError(f"{place}: expected a list of upper bounds, got {bounds!r}")
        for bound in bounds:
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
                raise ArgumentError(f"{place}: expected whole numbers, 0 or more, got {bound!r}")


def check_names(op: str, argument: str, names: Sequence[str], known: Sequence[str]) -> None:
    """ArgumentError for a name that is none of ``known`` arguments and sizes."""
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"op {op}: {argument} names '{name}', which is no argument or size of the program "
                f"({', '.join(known) or 'it has none'})"
            )


@contextmanager
def errors_of(op: str, argument: str) -> Iterator[None]:
    """Say of which op and argument an error is; what a user's function raises becomes one."""
    try:
        yield
    except (ArgumentError, ArgumentTypeError) as error:
        if str(error).startswith("op "):
            raise
        raise type(error)(f"op {op}: {error}") from error
    except TileopsError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"op {op}: {argument} raised {type(error).__name__}: {error}"
        ) from error


def check_inputs(
    op: str,
    source: str,
    given: Sequence[Any],
    params: Sequence[Any],
    raw: frozenset[str],
    device: torch.device,
) -> None:
    """ArgumentError or ArgumentTypeError where inputs from ``source`` are not what ``params`` take.

    Only what every config takes alike is checked: how many, which are tensors, on what kind of
    device, dtypes, and fixed extents (the last two not of the tensors ``raw``, of which any do).
    """
    names = ", ".join(p.name for p in params)
    if len(given) != len(params):
        raise ArgumentError(
            f"op {op}: {source} gave {len(given)} inputs, the program takes {len(params)} ({names})"
        )
    for value, param in zip(given, params, strict=True):
        if isinstance(value, torch.Tensor) == param.is_scalar:
            wanted = "a number" if param.is_scalar else "a tensor"
            raise ArgumentTypeError(
                f"op {op}: {source} gave {type(value).__name__} for '{param.name}', expected "
                f"{wanted}"
            )
        if isinstance(value, torch.Tensor) and value.device.type != device.type:
            raise ArgumentError(
                f"op {op}: {source} gave a tensor on {value.device} for '{param.name}', expected "
                f"one on {device}"
            )
        is_checked = isinstance(value, torch.Tensor) and param.name not in raw
        if is_checked and not _holds(value.dtype, param.dtype):
            raise ArgumentTypeError(
                f"op {op}: {source} gave a tensor of {value.dtype} for '{param.name}', expected "
                f"{param.dtype}"
            )
        if is_checked and not _fits(tuple(value.shape), param.shape):
            raise ArgumentError(
                f"op {op}: {source} gave a tensor of shape {tuple(value.shape)} for "
                f"'{param.name}', expected ({', '.join(map(str, param.shape))})"
            )


def _holds(dtype: torch.dtype, wanted: torch.dtype) -> bool:
    # Of one byte there are several that stand for each other, as the call itself checks.
    return dtype == wanted or dtype.itemsize == wanted.itemsize == 1


def _fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    if wanted and wanted[0] == "...":
        rest = wanted[1:]
        count = len(shape) - len(rest)
        return count >= 0 and _fits(shape[count:], rest)
    return len(shape) == len(wanted) and all(
        isinstance(w, str) or n == w for n, w in zip(shape, wanted, strict=True)
    )
