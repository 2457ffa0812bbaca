"""Owns what a program says of the options that it was declared with, under the peers' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tileops.jit.definition import Definition


class GivenOptions:
    """The arguments of ``jit``, as given."""

    definition: Definition

    @property
    def out_idx(self) -> list[int] | int | None:
        return self.definition.options.out_idx

    @property
    def target(self) -> object:
        return self.definition.options.target

    @property
    def target_host(self) -> object:
        return self.definition.options.target_host

    @property
    def execution_backend(self) -> str | None:
        return self.definition.options.execution_backend

    @property
    def verbose(self) -> bool | None:
        return self.definition.options.verbose

    @property
    def pass_configs(self) -> Mapping[Any, object] | None:
        return self.definition.options.pass_configs

    @property
    def debug_root_path(self) -> str | None:
        return self.definition.options.debug_root_path

    @property
    def compile_flags(self) -> Sequence[str] | str | None:
        return self.definition.options.compile_flags
