"""Owns where the cache lies: from settings to directories that may be used, or why none may."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tileops.cache.files import Trust, UntrustedError
from tileops.settings import Settings

# The folders whose content decides what runs: entries, what is renamed to become one, and the
# records that name them.
_TRUSTED = ("programs", "scripts", ".state", ".state/staging")


@dataclass(frozen=True)
class Directory:
    """One cache directory. ``writable``: tileops may publish here (a layer is only read)."""

    root: Path
    writable: bool
    trust: Trust

    @property
    def programs(self) -> Path:
        return self.root / "programs"

    @property
    def scripts(self) -> Path:
        return self.root / "scripts"

    @property
    def staging(self) -> Path:
        return self.root / ".state" / "staging"

    @property
    def locks(self) -> Path:
        return self.root / ".state" / "locks"

    @property
    def in_use(self) -> Path:
        return self.root / ".state" / "in_use"

    @property
    def state(self) -> Path:
        return self.root / ".state"


@dataclass(frozen=True)
class Resolved:
    """The directories of this moment in search order, and what was refused (None if nothing)."""

    layers: tuple[Directory, ...]
    private: Directory | None
    problem: str | None


def resolve(settings: Settings) -> Resolved:
    """The read-only layers, then the private directory. Makes nothing; never raises OSError.

    A missing directory is fine (it is made at the first write); one that is no directory, or that
    others can write, is refused and ``problem`` says so.
    """
    if settings.cache_disable:
        return Resolved((), None, None)
    trust = Trust(shared=settings.cache_trust_shared)
    problems = []
    layers: list[Directory] = []
    for text in settings.cache_path:
        root = expand(text, settings.home)
        problem = _refusal(root, trust, text)
        if any(layer.root == root for layer in layers):
            continue
        if problem is None and root is not None:
            layers.append(Directory(root, False, trust))
        elif problem is not None:
            problems.append(problem)
    root, text = _private_root(settings)
    problem = _refusal(root, trust, text)
    if problem is not None or root is None:
        problems.append(problem or "")
        return Resolved(tuple(layers), None, "; ".join(problems))
    return Resolved(
        tuple(layers), Directory(root, True, trust), "; ".join(problems) if problems else None
    )


def _private_root(settings: Settings) -> tuple[Path | None, str]:
    if settings.cache_dir is not None:
        return expand(settings.cache_dir, settings.home), settings.cache_dir
    # The base directory specification says to ignore a relative path here.
    if settings.xdg_cache_home is not None and settings.xdg_cache_home.startswith("/"):
        return Path(settings.xdg_cache_home, "tileops"), settings.xdg_cache_home
    return expand("~/.cache/tileops", settings.home), "~/.cache/tileops"


def expand(text: str, home: str | None) -> Path | None:
    """``text`` as an absolute path; None if there is no home, or no folder to be relative to."""
    if not text.startswith("~"):
        try:
            return Path(os.path.abspath(text))  # noqa: PTH100  (resolve() would follow links)
        except OSError:
            return None
    if text == "~" or text.startswith("~/"):
        base = home or _home_of_user()
        return None if base is None else Path(base, text[2:])
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return None


def _home_of_user() -> str | None:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's uid that no passwd line names
        return None


def _refusal(root: Path | None, trust: Trust, text: str) -> str | None:
    if root is None or not root.is_absolute():
        lack = "this user has no home" if text.startswith("~") else "there is no current"
        return f"{text}: {lack} directory"
    for path in (str(root), *(f"{root}/{name}" for name in _TRUSTED)):
        try:
            status = os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{path}: {error.strerror}"
        except ValueError as error:  # a zero byte, or a text that is no name of a file
            return f"{path!r}: {error}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is not a directory"
        try:
            trust.require(path, status)
        except UntrustedError as error:
            return f"{error}, and its files are code (TILEOPS_CACHE_TRUST_SHARED=1 allows it)"
    return None
