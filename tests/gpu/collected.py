"""Finds the tests of another module, one call for each set of parameters."""

from __future__ import annotations

import functools
import inspect
import itertools
from types import ModuleType
from typing import Any

import pytest


def gathered(module: ModuleType, *, calling: str) -> list[Any]:
    """The tests of a module that reach its function ``calling``, as parameters without arguments.

    Tests with fixtures and tests that expect a refusal are left out.
    """
    found = []
    for name, test in vars(module).items():
        if name.startswith("test_") and _reaches(module, test, calling):
            for given in _parameters(test):
                label = "-".join([name.removeprefix("test_"), *map(str, given.values())])
                found.append(pytest.param(functools.partial(test, **given), id=label))
    return found


def _reaches(module: ModuleType, test: Any, calling: str, depth: int = 2) -> bool:
    if not inspect.isfunction(test) or "raises" in test.__code__.co_names:
        return False
    names = test.__code__.co_names
    if calling in names:
        return True
    return depth > 0 and any(
        _reaches(module, getattr(module, name, None), calling, depth - 1) for name in names
    )


def _parameters(test: Any) -> list[dict[str, Any]]:
    marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
    choices = [[{mark.args[0]: value} for value in mark.args[1]] for mark in marks]
    sets = [
        functools.reduce(lambda a, b: {**a, **b}, one, {}) for one in itertools.product(*choices)
    ]
    return sets if set(inspect.signature(test).parameters) == set(sets[0]) else []
