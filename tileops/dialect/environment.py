"""``tilelang.env``: what programs ask of the environment, answered from tileops' own settings."""

from __future__ import annotations

from pathlib import Path

from tileops import settings
from tileops.cache.directory import resolve
from tileops.cache.kernel_cache import disable_cache, enable_cache, is_cache_enabled
from tileops.errors import ProgramAttributeError

__all__ = ["env"]


class Environment:
    """The settings that programs read; setting one is an error that names ``tileops.option``."""

    @property
    def TILELANG_CACHE_DIR(self) -> str:
        """The folder of the cache on disk; empty where there is none."""
        directory = resolve(settings.current()).private
        return "" if directory is None else str(directory.root)

    @property
    def TILELANG_PACKAGE_PATH(self) -> Path:
        """The folder of the package."""
        return Path(settings.PACKAGE_ROOT) / "tileops"

    @property
    def TILELANG_PRINT_ON_COMPILATION(self) -> str:
        """``1`` if each compile writes a line to the log."""
        return "1" if {"compile", "all"} & set(settings.current().log) else "0"

    @property
    def CUDA_HOME(self) -> str:
        """The folder of a CUDA toolkit; empty, since tileops needs none."""
        return ""

    def is_cache_enabled(self) -> bool:
        """True unless the cache is off."""
        return is_cache_enabled()

    def enable_cache(self) -> None:
        """Turn the cache on."""
        enable_cache()

    def disable_cache(self) -> None:
        """Turn the cache on disk off."""
        disable_cache()

    def __getattr__(self, name: str) -> str:
        raise ProgramAttributeError(
            f"env.{name}: tileops does not have this setting; its own are in tileops.option and "
            "in TILEOPS_ variables (python -m tileops env)"
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise ProgramAttributeError(
            f"env.{name} = {value!r}: settings are changed by tileops.option or TILEOPS_ variables"
        )


env = Environment()


def __getattr__(name: str) -> object:
    return getattr(env, name)
