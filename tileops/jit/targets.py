"""The choice of a target: from what the user wrote, or from the device of the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tileops import settings
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.optional_torch import IS_HERE, torch
from tileops.target import Target, host_cpu_level, parse_target

TargetLike = str | Mapping[str, str] | Target | None


def requested_target(value: TargetLike) -> Target | None:
    """The target that ``target=`` names; None if the device of the tensors decides.

    Accepts a Target, text (``cuda:sm_90``, ``cpu``, ``auto``), ``{"kind": ..., "arch": ...}`` or
    None, which means ``TILEOPS_TARGET``. ArgumentError for a text that names no target.
    """
    if isinstance(value, Target):
        return value
    if value is None:
        named = settings.current().target
        try:
            return None if named is None else requested_target(named)
        except ArgumentError as error:
            raise ArgumentError(
                f"{error} (the default, which TILEOPS_TARGET or tileops.option.target names)"
            ) from None
    if isinstance(value, Mapping):
        value = ":".join(str(value[k]) for k in ("kind", "arch") if value.get(k))
    if value == "auto":
        return None
    if not isinstance(value, str):
        raise ArgumentTypeError(f"target must be a string, a mapping or None, got {value!r}")
    if value == "cuda":
        if not torch.cuda.is_available():
            raise ArgumentError(
                "target 'cuda' needs a GPU to take its architecture from, and torch sees none; "
                "name one, such as cuda:sm_90"
            )
        return device_target("cuda", torch.cuda.current_device())
    return parse_target(value)


def default_target() -> Target:
    """The target of a compile without a named target or tensors: the current GPU, else this CPU."""
    if IS_HERE and torch.cuda.is_available():
        return device_target("cuda", torch.cuda.current_device())
    return device_target("cpu", 0)


def device_target(device_type: str, device_index: int) -> Target:
    """The target of a device as torch names it; ArgumentError for a kind without a generator."""
    if device_type not in ("cpu", "cuda"):
        raise ArgumentError(f"device {device_type!r}: tileops runs on cpu and cuda tensors")
    return _known_target(device_type, device_index)


@lru_cache(maxsize=64)
def _known_target(device_type: str, device_index: int) -> Target:
    if device_type == "cpu":
        return Target("cpu", host_cpu_level())
    if torch.version.hip is not None:
        name = torch.cuda.get_device_properties(device_index).gcnArchName
        return parse_target(f"hip:{name.partition(':')[0]}")
    major, minor = torch.cuda.get_device_capability(device_index)
    return parse_target(f"cuda:sm_{major}{minor}")


def is_runnable_on(target: Target, device_type: str, device_index: int) -> bool:
    """True if code for ``target`` runs on the device: the same kind, and the same GPU."""
    if target.kind == "cpu":
        return device_type == "cpu"
    return device_type == "cuda" and device_target("cuda", device_index) == target


def device_for(target: Target) -> tuple[str, int] | None:
    """A device here that runs code for ``target``: the CPU, the current GPU, or None."""
    if target.kind == "cpu":
        return ("cpu", 0)
    if not torch.cuda.is_available():
        return None
    device = ("cuda", torch.cuda.current_device())
    return device if is_runnable_on(target, *device) else None
