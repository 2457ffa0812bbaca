"""The cache directories that the settings name, and why one of them may not be used."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tileops import settings
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
    def aliases(self) -> Path:
        return self.root / "aliases"

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
    def state(self) -> Path:
        return self.root / ".state"


@dataclass(frozen=True)
class Resolved:
    """The directories of this moment in search order, and what was refused (None if nothing)."""

    layers: tuple[Directory, ...]
    private: Directory | None
    problem: str | None

    def __iter__(self) -> Iterator[Directory]:
        """The directories in the order in which they are searched."""
        yield from self.layers
        if self.private is not None:
            yield self.private


def here() -> Resolved:
    """The directories that the settings of this moment name."""
    return settings.derived(resolve)


def resolve(named: Settings) -> Resolved:
    """The read-only layers, then the private directory. Makes nothing; never raises OSError.

    A missing directory is fine (it is made at the first write); one that is no directory, or that
    others can write, is refused and ``problem`` says so.
    """
    if named.cache_disable:
        return Resolved((), None, None)
    trust = Trust(shared=named.cache_trust_shared)
    layers: list[Directory] = []
    problems = []
    for text in named.cache_path:
        root, problem = _usable(text, expand(text, named.home), trust)
        if problem is not None:
            problems.append(problem)
        elif all(layer.root != root for layer in layers):
            layers.append(Directory(root, False, trust))
    # The base directory specification says to ignore a relative path in XDG_CACHE_HOME.
    text = named.cache_dir or "~/.cache/tileops"
    if named.cache_dir is None and (named.xdg_cache_home or "").startswith("/"):
        text = f"{named.xdg_cache_home}/tileops"
    root, problem = _usable(text, expand(text, named.home), trust)
    if problem is not None:
        problems.append(problem)
    private = Directory(root, True, trust) if problem is None else None
    return Resolved(tuple(layers), private, "; ".join(problems) or None)


def expand(text: str, home: str | None) -> Path | None:
    """``text`` as an absolute path; None if there is no home, or no folder to be relative to."""
    if not text.startswith("~"):
        try:
            return Path(os.path.abspath(text))  # noqa: PTH100  (resolve() would follow links)
        except OSError:
            return None
    if text == "~" or text.startswith("~/"):
        import pwd

        try:
            return Path(home or pwd.getpwuid(os.getuid()).pw_dir, text[2:])
        except KeyError:  # a container's uid that no passwd line names
            return None
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return None


def _usable(text: str, root: Path | None, trust: Trust) -> tuple[Path, str | None]:
    """The folder that ``text`` names, and why it may not be used (None if it may)."""
    if root is None or not root.is_absolute():
        lack = "this user has no home" if text.startswith("~") else "there is no current"
        return Path(text), f"{text}: {lack} directory"
    return root, _refusal(root, trust)


def _refusal(root: Path, trust: Trust) -> str | None:
    for path in (str(root), *(f"{root}/{name}" for name in _TRUSTED)):
        try:
            status = os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{path}: {error.strerror}"
        except ValueError as error:  # a zero byte, or text that cannot be a file's name
            return f"{path!r}: {error}"
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is not a directory"
        try:
            trust.require(path, status)
        except UntrustedError as error:
            return f"{error}, and its files are code (TILEOPS_CACHE_TRUST_SHARED=1 allows it)"
    return None
