"""Triton's decorators over a kernel: heuristics, which compute arguments, and configs to try."""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tileops.errors import (
    ArgumentTypeError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.foreign.triton_source import is_launchable, is_wrapper

# Options of a config besides its parameters, with the values that Triton's launcher takes for them.
_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}


def unwrapped(
    kernel: Any, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[Any, dict[str, object]]:
    """The jit function under Triton's decorators, and the arguments that it gets by name.

    A config's values are those that the launch gives, or those of the only config.
    """
    names = list(kernel.arg_names)
    if len(args) > len(names):
        raise ProgramTypeError(
            f"a foreign kernel takes {len(names)} arguments",
            expected=", ".join(names),
            found=f"{len(args)} positional arguments",
        )
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    while not hasattr(kernel, "params"):
        if is_wrapper(kernel, "Heuristics"):
            for name, compute in kernel.values.items():
                named[name] = compute(dict(named))
        elif is_wrapper(kernel, "Autotuner"):
            named |= _config_of(kernel, named)
        else:
            raise UnsupportedConstructError(
                f"a foreign kernel under the decorator {type(kernel).__name__}",
                expected="@triton.jit, @gluon.jit, @triton.heuristics and @triton.autotune",
            )
        kernel = kernel.fn
    return kernel, named


def _config_of(tuner: Any, named: Mapping[str, object]) -> dict[str, object]:
    configs = list(_configs(tuner))
    names = sorted({name for config in configs for name in config})
    open_names = [name for name in names if name not in named]
    if not open_names:
        return {}
    if len(configs) > 1:
        given = ", ".join(f"{name}={name}" for name in names)
        kernel = str(tuner.base_fn.__name__)
        raise ProgramValueError(
            f"{kernel} has {len(configs)} configs of @triton.autotune: make their values "
            "parameters of the program, pass them to the launch, and let tileops choose",
            expected=f"@tileops.autotune(configs=tileops.triton_configs({kernel})) and "
            f"{kernel}[grid](..., {given})",
            found=f"no value for {', '.join(open_names)}",
        )
    return {name: value for name, value in configs[0].items() if name not in named}


def _configs(tuner: Any) -> Iterator[dict[str, object]]:
    """The configs of a tuner; the options that no config changes are left out."""
    _refuse_hooks(tuner)
    changed = {
        name
        for name, usual in _OPTIONS.items()
        if any(getattr(config, name, usual) not in (usual, None) for config in tuner.configs)
    }
    for config in tuner.configs:
        chosen = {name: getattr(config, name) for name in _OPTIONS if name in changed}
        yield {**config.kwargs, **chosen}


def _refuse_hooks(tuner: Any) -> None:
    wanted = {
        "pre_hook": getattr(tuner, "user_defined_pre_hook", False)
        or any(config.pre_hook is not None for config in tuner.configs),
        "post_hook": getattr(tuner, "user_defined_post_hook", False),
        "perf_model": tuner.perf_model is not None,
        "early_config_prune": tuner.early_config_prune is not None,
        "ir_override": any(getattr(config, "ir_override", None) for config in tuner.configs),
    }
    found = [name for name, is_there in wanted.items() if is_there]
    if found:
        raise UnsupportedConstructError(
            f"{tuner.base_fn.__name__}: @triton.autotune with {', '.join(found)}",
            expected="configs alone; what is zeroed or restored between runs needs no mention, "
            "because tileops measures on copies",
        )


def triton_configs(kernel: object) -> list[dict[str, object]]:
    """The configs of a ``@triton.autotune`` kernel as ``tileops.autotune(configs=...)`` takes them.

    Each has the kernel's compile-time parameters and, where any config changes them, num_warps,
    num_stages, num_ctas and maxnreg. ArgumentTypeError for a kernel without configs,
    UnsupportedConstructError for hooks and pruning, which are Python of the kernel's author.
    """
    found: Any = kernel
    while is_launchable(found) and not is_wrapper(found, "Autotuner"):
        found = getattr(found, "fn", None)
    if found is None or not is_launchable(found):
        raise ArgumentTypeError(
            f"triton_configs: expected a kernel under @triton.autotune, got {kernel!r:.80}"
        )
    return list(_configs(found))
