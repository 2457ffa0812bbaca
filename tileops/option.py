"""Options that a user sets in code: a layer over the environment's settings.

Each function sets its option for the process and returns a handle. Used in a ``with`` statement the
handle puts the former value back at the end::

    tileops.option.cache_dir("./cache")
    with tileops.option.strict():
        model(x)  # a compile in here is an error
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from tileops import settings
from tileops.errors import ArgumentError, ArgumentTypeError


class Override(AbstractContextManager["Override"]):
    """Options that were set. Leaving a ``with`` block on it restores the former values."""

    def __init__(self, **values: object) -> None:
        self._previous = {name: settings.override(name, value) for name, value in values.items()}

    def undo(self) -> None:
        """Put back the former values."""
        for name, value in reversed(self._previous.items()):
            settings.override(name, value)

    def __exit__(self, *error: object) -> None:
        self.undo()


def _path(value: str | os.PathLike[str]) -> str:
    # Absolute at once, so that a later chdir does not move the cache. "~" is left for the reader,
    # who knows whether there is a home.
    if not isinstance(value, str | os.PathLike):
        raise ArgumentTypeError(f"expected a path, got {type(value).__name__}")
    text = os.fspath(value)
    return text if text.startswith("~") else os.path.abspath(text)  # noqa: PTH100


def cache_dir(path: str | os.PathLike[str] | None) -> Override:
    """Keep the cache in ``path`` (made when first written); None goes back to the environment."""
    return Override(cache_dir=settings.UNSET if path is None else _path(path))


def cache_path(*layers: str | os.PathLike[str]) -> Override:
    """Search these read-only layers, in order, before the private directory."""
    return Override(cache_path=tuple(_path(layer) for layer in layers))


def cache_limit(limit: int | str | None) -> Override:
    """Remove least recently used entries past ``limit``: bytes, ``"10GiB"``, or None for no limit.

    ArgumentError if the text names no size, or the number is negative.
    """
    if isinstance(limit, str):
        try:
            limit = settings.parse_bytes(limit)
        except ValueError as error:
            raise ArgumentError(f"cache_limit({limit!r}): expected {error}") from None
    if limit is not None and limit < 0:
        raise ArgumentError(f"cache_limit({limit}): expected 0 bytes or more")
    return Override(cache_limit=limit)


def cache_disable(disable: bool = True) -> Override:
    """Keep entries in memory only."""
    return Override(cache_disable=bool(disable))


def cache_keep(*stages: str) -> Override:
    """Store these stages beside the artifact: ``"all"``, ``"none"``, or suffixes (``"ptx"``)."""
    return Override(cache_keep=tuple(stages))


def toolchain_match(match: str) -> Override:
    """Take a compiled program from the cache that another compiler made, or another version of it.

    ``"exact"``: never; ``"missing"``: where this machine lacks the compiler; ``"any"``: wherever a
    compile would be needed. ArgumentError for another word.
    """
    try:
        return Override(toolchain_match=settings.toolchain_match(match))
    except (ValueError, AttributeError):
        raise ArgumentError(
            f"toolchain_match({match!r}): expected one of {', '.join(settings.MATCHES)}"
        ) from None


def remote(
    url: str | None,
    *,
    mode: str = "read",
    sign: str | None = None,
    keys: str | os.PathLike[str] | None = None,
) -> Override:
    """Use the fleet cache at ``url`` on a miss; None goes back to the environment.

    ``mode="readwrite"`` writes what is compiled here, signed with the key ``sign`` (default: the
    only one in the keys file that can). ``keys`` is the keys file, else TILEOPS_REMOTE_KEYS.
    ArgumentError for another scheme or mode.
    """
    if url is None:
        return Override(remote=settings.UNSET, remote_mode=settings.UNSET)
    try:
        values: dict[str, object] = {"remote": settings.remote_url(url)}
        values["remote_mode"] = settings.remote_mode(mode)
    except ValueError as error:
        raise ArgumentError(f"option.remote: expected {error}") from None
    if sign is not None:
        values["remote_sign"] = sign
    if keys is not None:
        values["remote_keys"] = _path(keys)
    return Override(**values)


def bundle(*paths: str | os.PathLike[str]) -> Override:
    """Look into these bundles before a compile, in order, in place of those of ``TILEOPS_BUNDLE``.

    Without a path, none of the settings' bundles is looked into. Kernels that are loaded stay.
    """
    return Override(bundle=tuple(_path(path) for path in paths))


def strict(enable: bool = True) -> Override:
    """Turn every compile from now on into a CompileMissError that names op and key."""
    return Override(strict=bool(enable))


def verbose(enable: bool = True) -> Override:
    """Set the default of ``verbose=`` in ``jit`` and ``compile``."""
    return Override(verbose=bool(enable))


def log(*topics: str) -> Override:
    """Print lines of these topics on stderr: ``"compile"``, ``"cache"``, ``"tune"``, ``"all"``.

    ArgumentError for another word.
    """
    try:
        return Override(log=settings.topics(",".join(topics)))
    except ValueError as error:
        raise ArgumentError(f"option.log{topics}: expected {error}") from None


def check(enable: bool = True) -> Override:
    """Compile checks of on-chip indices into kernels, as ``TILEOPS_CHECK=1`` does.

    A failure is an ArgumentError that names the op, the buffer, the index and the program's line.
    Loaded kernels are forgotten when the option changes.
    """
    return Override(check=bool(enable))


def target(text: str | None) -> Override:
    """Set the default target, such as ``"cuda:sm_90"``; None goes back to the environment."""
    return Override(target=settings.UNSET if text is None else text)


def compile_workers(count: int) -> Override:
    """Compile ``count`` programs at a time in ``par_compile`` and ``warmup``; 1 or more."""
    if count < 1:
        raise ArgumentError(f"compile_workers({count}): expected 1 or more")
    return Override(compile_workers=count)


class _Debug:
    """Options for looking into a compile: ``tileops.option.debug``."""

    def dump_ir(self, enable: bool = True) -> Override:
        """Write the IR after each pass as ``ir/NN_<pass>.txt`` into the program's cache folder.

        The code and its key stay the same. A program that is in the cache gets its dump when it is
        next compiled or looked up: a call of a program that is loaded does neither.
        """
        return Override(dump_ir=bool(enable))

    def verify_ir(self, enable: bool = True) -> Override:
        """Check the IR's rules after each pass; a fault is an InternalError that names the pass."""
        return Override(verify_ir=bool(enable))

    def cpu(self, enable: bool = True, *, nan: bool = True) -> Override:
        """Compile kernels for the CPU to be debugged: not optimised, with symbols and checks.

        An index outside an on-chip buffer is an ArgumentError that names the buffer, the index and
        the program's line; with ``nan`` so is a NaN that a statement stores or computes. On-chip
        buffers start as NaN in every block, so that a read of what was never written is found.
        Loaded kernels are forgotten when the option changes.
        """
        return Override(debug_nans=bool(nan), debug_cpu=bool(enable))


debug = _Debug()


def reset() -> None:
    """Forget every option that was set: the environment alone decides again."""
    settings.clear_overrides()
