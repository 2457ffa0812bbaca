"""The hook of setuptools: a command of ``build`` that puts compiled kernels into the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from setuptools import Command

from tileops.packaging import config as configs
from tileops.packaging import kernels
from tileops.packaging.config import Config

_COMMAND = "build_tileops"


def finalize(distribution: Any) -> None:  # noqa: ANN401
    """Add the command to a project that asks for kernels; called for every project."""
    config = configs.read(Path.cwd())
    if config is None:
        return
    build = distribution.get_command_class("build")
    commands = [*build.sub_commands, (_COMMAND, None)]
    made = type("build", (build,), {"sub_commands": commands})
    kernels_of = type(_COMMAND, (BuildKernels,), {"config": config})
    distribution.cmdclass.update({"build": made, _COMMAND: kernels_of})
    if config.has_cpu_code:
        distribution.has_ext_modules = lambda: True  # for its platform's folders and tag
        wheel = distribution.get_command_class("bdist_wheel")
        distribution.cmdclass["bdist_wheel"] = type("bdist_wheel", (_ForPlatform, wheel), {})


class BuildKernels(Command):
    """Compiles the ops of ``[tool.tileops]`` into the package that ``build_py`` has copied."""

    description = "compile the kernels of [tool.tileops]"
    user_options: list[tuple[str, str | None, str]] = []  # noqa: RUF012 - setuptools' protocol
    config: Config

    def initialize_options(self) -> None:
        """Start with what setuptools sets later."""
        self.build_lib: str | None = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        """Take the folder that ``build`` fills."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Compile; an editable install, which has sources and a cache, gets no kernels."""
        if self.editable_mode:
            return
        assert self.build_lib is not None
        root = Path(self.build_lib)
        out = root / self.config.folder
        shutil.rmtree(out, ignore_errors=True)  # of an earlier build
        kernels.build(self.config, out.absolute(), root)

    def get_source_files(self) -> list[str]:
        """None beyond those of the package."""
        return []

    def get_outputs(self) -> list[str]:
        """The files of the bundle."""
        assert self.build_lib is not None
        out = Path(self.build_lib) / self.config.folder
        return sorted(str(path) for path in out.rglob("*") if path.is_file())

    def get_output_mapping(self) -> dict[str, str]:
        """No file stands for one of the sources."""
        return {}


class _ForPlatform:
    """A wheel that is for one platform and, without extension modules, for every Python."""

    distribution: Any

    def get_tag(self) -> tuple[str, str, str]:
        tag: tuple[str, str, str] = super().get_tag()  # type: ignore[misc]
        return tag if self.distribution.ext_modules else ("py3", "none", tag[2])
