"""Owns the identity of the toolchain.

What made an artifact, by version and content, never by path.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path

from tileops.errors import ToolchainError
from tileops.target import Target


def toolchain_versions(target: Target) -> dict[str, str]:
    """The tools that code for ``target`` goes through: name to version and content hash.

    Reads package metadata and hashes files; imports no compiler. ToolchainError where a tool is
    missing.
    """
    if target.kind == "cpu":
        from tileops.compiler import gxx

        return dict(gxx.toolchain_versions(target))
    out = {"triton": _triton_version()}
    if target.kind == "cuda":
        out["ptxas"] = _content_hash(_ptxas(target))
    return out


def toolchain_files(target: Target) -> tuple[Path, ...]:
    """The files that ``toolchain_versions`` speaks of: while they stay, so does its answer."""
    if target.kind == "cpu":
        from tileops.compiler import gxx

        return (Path(gxx.command(target)[0]).resolve(),)
    spec = util.find_spec("triton")
    package = (Path(spec.origin),) if spec is not None and spec.origin is not None else ()
    return (*package, _ptxas(target)) if target.kind == "cuda" else package


def _triton_version() -> str:
    for name in ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    raise ToolchainError(
        "compiling for a GPU needs Triton 3.6 to 3.9, which is not installed: pip install triton"
    )


def _ptxas(target: Target) -> Path:
    """The assembler that Triton calls for the target: since 3.8 the newer one from Hopper on."""
    spec = util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise ToolchainError("Triton's package folder was not found; reinstall triton")
    folder = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    newer = folder / "ptxas-blackwell"
    both = [newer, folder / "ptxas"] if target.capability >= 90 else [folder / "ptxas"]
    for path in both:
        if path.is_file():
            return path
    raise ToolchainError(f"Triton's assembler is missing from {folder}; reinstall triton")


@lru_cache(maxsize=8)
def _content_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()[:32]
