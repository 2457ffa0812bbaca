"""Owns spaces of configs: lists, functions and products of choices, and their canonical text."""

from __future__ import annotations

import enum
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tileops.errors import ArgumentError, ArgumentTypeError

# What a config may hold beside tunable parameters.
PASS_CONFIGS = "pass_configs"

Config = dict[str, Any]
Configs = Iterable[Mapping[str, Any]] | Callable[..., Any] | Mapping[str, Any] | str


@dataclass(frozen=True)
class Space:
    """All combinations of some choices that a condition allows; iterates over configs."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    where: Callable[..., object] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The tunable parameters, in order."""
        return tuple(name for name, _ in self.axes)

    def __iter__(self) -> Iterator[Config]:
        for values in itertools.product(*(choices for _, choices in self.axes)):
            config = dict(zip(self.names, values, strict=True))
            if self._allows(config):
                yield config

    def _allows(self, config: Config) -> bool:
        if self.where is None:
            return True
        try:
            return bool(self.where(**config))
        except Exception as error:
            raise ArgumentError(
                f"space: where raised {type(error).__name__} for {describe(config)}: {error}"
            ) from error


def space(*, where: Callable[..., object] | None = None, **axes: Iterable[Any]) -> Space:
    """The configs with one choice an axis: ``space(block_M=[64, 128], num_stages=[2, 3])``.

    ``where`` takes every axis by keyword and keeps a config by returning true. ArgumentError for
    an axis without choices, or for no axis.
    """
    if not axes:
        raise ArgumentError("space: give at least one axis, such as block_M=[64, 128]")
    if where is not None and not callable(where):
        raise ArgumentTypeError(f"space: where: expected a function, got {where!r}")
    for name, values in axes.items():
        if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
            raise ArgumentTypeError(f"space: axis '{name}': expected choices, got {values!r}")
    fixed = tuple((name, tuple(choices)) for name, choices in axes.items())
    for name, choices in fixed:
        if not choices:
            raise ArgumentError(f"space: axis '{name}' has no choices")
    return Space(fixed, where)


def with_default(configs: Iterable[Config], default: Config | None) -> list[Config]:
    """Each config once, whole, and the default among them.

    A config that leaves out a parameter means its default, so two of them may be one.
    """
    whole = [{**(default or {}), **config} for config in configs]
    found = {canonical(config): config for config in reversed(whole)}
    ordered = dict.fromkeys(map(canonical, whole))
    if default is not None:
        ordered[canonical(default)] = None
        found[canonical(default)] = default
    return [found[name] for name in ordered]


def canonical(config: Mapping[str, Any]) -> str:
    """The one text of a config: same values, same text, in every process.

    ArgumentTypeError for a value that is no number, text, None, or list of those.
    """
    try:
        return json.dumps(plain(config), sort_keys=True, separators=(",", ":"))
    except TypeError as error:
        raise ArgumentTypeError(f"config {dict(config)}: {error}") from None


def plain(value: object) -> Any:  # noqa: ANN401
    """A config's value as JSON has it: tuples are lists, keys and dtypes are text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, str):
        return str(value)  # a dtype of the language is text with more to it
    raise TypeError(f"{value!r} cannot be kept in a file")


def resolve(configs: Configs, names: Sequence[str], arguments: Sequence[Any]) -> list[Config]:
    """The configs as a list without repetitions.

    ``configs`` is a list of dicts, a Space, or a function of the call's ``arguments`` (tensors as
    ``("tensor", dtype, shape, stride)``) that returns one of these. A dict of lists is a product.
    ArgumentError for an empty list or a key that is none of ``names`` and not ``pass_configs``.
    """
    found: Any = configs
    if callable(found) and not isinstance(found, (Space, Mapping)):
        found = _called(found, arguments)
    if isinstance(found, Mapping):
        found = Space(tuple((str(name), _choices(value)) for name, value in found.items()))
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise ArgumentTypeError(f"configs: expected dicts, a space or a function, got {found!r}")
    unique: dict[str, Config] = {}
    for config in found:
        if not isinstance(config, Mapping):
            raise ArgumentTypeError(f"configs: expected dicts, got {config!r}")
        unknown = set(config) - set(names) - {PASS_CONFIGS}
        if unknown:
            raise ArgumentError(
                f"configs: '{min(map(str, unknown))}' is no compile-time parameter of the program "
                f"({', '.join(names) or 'it has none'})"
            )
        own = {name: _own_number(value) for name, value in config.items()}
        _check_options(own.get(PASS_CONFIGS))
        unique.setdefault(canonical(own), own)
    if not unique:
        raise ArgumentError("configs: the space is empty")
    return list(unique.values())


def _own_number(value: Any) -> Any:  # noqa: ANN401
    """A number of numpy or torch as Python's own; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _check_options(options: object) -> None:
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentTypeError(
            f"configs: {PASS_CONFIGS}: expected a dict of options, got {options!r}"
        )


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:  # noqa: ANN401
    import inspect

    try:
        signature = inspect.signature(function)
    except ValueError:  # of one that is not written in Python nothing is known
        return function(*arguments)
    try:
        signature.bind(*arguments)
    except TypeError:
        if not signature.parameters:
            return function()
    return function(*arguments)


def _choices(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def describe(config: Mapping[str, Any]) -> str:
    """A config in one line for people."""
    return " ".join(f"{name}={value}" for name, value in config.items()) or "default"
