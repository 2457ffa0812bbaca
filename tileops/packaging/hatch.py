"""The hook of hatch: ``[tool.hatch.build.hooks.tileops]`` puts compiled kernels into the wheel."""

from __future__ import annotations

import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from tileops.errors import ArgumentError
from tileops.packaging import config as configs
from tileops.packaging import kernels


class KernelsHook(BuildHookInterface):
    """Compiles the ops of ``[tool.tileops]`` and adds the bundle to the wheel's package."""

    PLUGIN_NAME = "tileops"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install, which has sources and a cache, gets no kernels."""
        if self.target_name != "wheel" or version == "editable":
            return
        config = configs.read(Path(self.root))
        if config is None:
            raise ArgumentError(f"{self.root}: pyproject.toml has no table [tool.tileops]")
        self._made = tempfile.TemporaryDirectory(prefix="tileops-hatch-")
        out = Path(self._made.name) / "bundle"
        kernels.build(config, out)
        build_data["force_include"][str(out)] = config.folder
        if config.has_cpu_code:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data.setdefault("tag", f"py3-none-{platform}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, which the wheel holds now."""
        made = getattr(self, "_made", None)
        if made is not None:
            made.cleanup()


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_build_hook() -> type[KernelsHook]:
    """What hatch asks its plugins for."""
    return KernelsHook
