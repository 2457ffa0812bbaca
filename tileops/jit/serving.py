"""The code that serves a target: its own, and code for others that it can run.

A CPU runs code for lower levels. A GPU runs cubins for older GPUs of its generation, and PTX for
any older one, which the driver compiles at loading. Code for an architecture with features of its
own (``sm_90a``) runs there alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tileops import cache, runtime
from tileops.target import CPU_LEVELS, Target

_PLAIN = (89, 87, 86, 80)  # architectures of GPUs without features of their own
_TEGRA = 87  # its cubins and those of other chips of its generation do not run on each other


@dataclass(frozen=True)
class Form:
    """Code for ``target``, as machine code or as PTX, for another or the same target to run."""

    target: Target
    is_ptx: bool = False

    def note(self, target: Target) -> str:
        """What is special about it on ``target``, in words; empty for its own code."""
        if self.target == target:
            return ""
        return f"{self}, which the driver compiles" if self.is_ptx else str(self)

    def __str__(self) -> str:
        return f"PTX of {self.target}" if self.is_ptx else f"code for {self.target}"


def forms_for(target: Target, device: int | None) -> list[Form]:
    """What runs on ``target``, the best first: its own code, then that for others.

    ``device`` is the index of the GPU that will run it. None: code of another GPU would be no good.
    """
    own = Form(target)
    if target.kind == "cpu" and target.arch.startswith("x86-64"):
        levels = [level for level in CPU_LEVELS if level.startswith("x86-64")]
        lower = levels[: levels.index(target.arch)]
        return [own, *(Form(Target("cpu", level)) for level in reversed(lower))]
    if target.kind != "cuda" or device is None:
        return [own]
    older = [n for n in _PLAIN if n < target.capability]
    cubins = [Form(_plain(n)) for n in older if cubin_serves(n, target.capability)]
    return [own, *cubins, *(Form(_plain(n), is_ptx=True) for n in older)]


def _plain(capability: int) -> Target:
    return Target("cuda", f"sm_{capability}")


def cubin_serves(capability: int, device_capability: int) -> bool:
    """True if a cubin runs on a device of another, newer capability: in one generation."""
    return (
        capability // 10 == device_capability // 10
        and capability < device_capability
        and _TEGRA not in (capability, device_capability)
    )


class UnfitError(Exception):
    """Code that a device cannot run, and why."""


def in_form(entry: cache.Entry, form: Form, target: Target, device: int | None) -> cache.Entry:
    """The entry as ``target`` runs it in this form; UnfitError saying why it cannot."""
    if form.target == target or not target.is_gpu or device is None:
        return entry
    record = entry.manifest["record"]
    needed = max(launch["shared_bytes"] for launch in record["launches"])
    if needed > target.shared_limit:
        raise UnfitError(
            f"{form} needs {needed} bytes of shared memory, {target} has {target.shared_limit}"
        )
    if not form.is_ptx:
        return entry
    names = {launch["image"]: ptx_of(launch["image"]) for launch in record["launches"]}
    if not set(names.values()) <= set(entry.files):
        raise UnfitError(f"{form.target} has no PTX beside its cubin")
    for name in names.values():
        if refusal := runtime.refusal_of_ptx(entry.text(name), device):
            raise UnfitError(refusal)
    launches = [{**launch, "image": names[launch["image"]]} for launch in record["launches"]]
    manifest = {**entry.manifest, "record": {**record, "launches": launches}}
    return replace(entry, manifest=manifest)


def ptx_of(image: str) -> str:
    """The name of the PTX that the image of a launch was assembled from."""
    return re.sub(r"\.cubin$", ".ptx", image)


# -- in words --------------------------------------------------------------------------------------
def toolchain_text(key: cache.Key) -> str:
    """The tools of a key: name, version and the first digits of what they contain."""
    try:
        tools: Mapping[str, Any] | None = json.loads(key.fields["toolchain"])
    except (ValueError, RecursionError):
        tools = None
    if not isinstance(tools, dict) or not tools:
        return key.fields["toolchain"]
    return ", ".join(f"{name} {_shortened(value)}" for name, value in sorted(tools.items()))


def _shortened(value: object) -> str:
    words = str(value).split()
    return " ".join(word[:8] if len(word) >= 32 else word for word in words)
