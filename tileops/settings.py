"""Settings: environment variables, read only here, at each use; options override them."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tileops import forks
from tileops.errors import ArgumentError

# The folder from which ``import tileops`` finds this package.
PACKAGE_ROOT = str(Path(__file__).absolute().parents[1])

_T = TypeVar("_T")
_GIB = 1 << 30
_MOST_BYTES = 1 << 63
_UNITS = {
    "": 1, "b": 1,
    "k": 1 << 10, "kb": 10**3, "kib": 1 << 10,
    "m": 1 << 20, "mb": 10**6, "mib": 1 << 20,
    "g": _GIB, "gb": 10**9, "gib": _GIB,
    "t": 1 << 40, "tb": 10**12, "tib": 1 << 40,
}  # fmt: skip


def _flag(text: str) -> bool:
    value = text.strip().lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("1 or 0")


def parse_bytes(text: str) -> int | None:
    """Bytes named by ``"10GiB"``, ``"500 MB"``, ``"4096"``; None for ``"none"``; or ValueError."""
    value = text.strip().lower()
    if value in ("none", "unlimited"):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value)
    if match is None or match.group(2) not in _UNITS:
        raise ValueError("a size such as 10GiB, 500MB, 4096 (bytes) or none")
    size = float(match.group(1)) * _UNITS[match.group(2)]
    if size >= _MOST_BYTES:
        raise ValueError("less than 2^63 bytes, or none for no limit")
    return int(size)


def _paths(text: str) -> tuple[str, ...]:
    return tuple(_anchored(part) for part in text.split(os.pathsep) if part)


def _path(text: str) -> str | None:
    return _anchored(text) if text else None


def _anchored(text: str) -> str:
    # Read at each use, so a later chdir would move a relative path: it means the folder in which it
    # was first read, here and in child processes.
    if text.startswith(("/", "~")):
        return text
    found = _anchors.get(text)
    if found is None:
        try:
            found = _anchors.setdefault(text, os.path.abspath(text))  # noqa: PTH100
        except OSError:  # the working directory was deleted
            return text
    return found


_anchors: dict[str, str] = {}


def _words(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[,\s]+", text.strip()) if part)


def topics(text: str) -> tuple[str, ...]:
    """The topics of the log that ``text`` lists; ValueError for another word."""
    words = _words(text)
    if not set(words) <= _TOPICS:
        raise ValueError(f"topics among {', '.join(sorted(_TOPICS))}")
    return words


_TOPICS = frozenset({"all", "cache", "compile", "tune"})


def toolchain_match(text: str) -> str:
    """One of ``MATCHES``, the default for nothing; ValueError for another word."""
    word = text.strip().lower() or "missing"
    if word not in MATCHES:
        raise ValueError(f"one of {', '.join(MATCHES)}")
    return word


MATCHES = ("exact", "missing", "any")


def _text(text: str) -> str | None:
    return text or None


REMOTE_SCHEMES = ("redis", "rediss", "unix", "s3", "gs", "file")
REMOTE_MODES = ("read", "readwrite")


def remote_url(text: str) -> str | None:
    """The URL of a remote; ValueError if it has another scheme or names nothing."""
    if not text:
        return None
    scheme, separator, rest = text.partition("://")
    # The text itself is not in the error: it may hold a password.
    if scheme not in REMOTE_SCHEMES or not separator or not rest.strip("/"):
        raise ValueError(f"a URL with one of the schemes {', '.join(REMOTE_SCHEMES)}")
    if scheme == "file" and not rest.startswith("/"):
        raise ValueError("file:// with an absolute path")
    return text


def remote_mode(text: str) -> str:
    """``read`` or ``readwrite``; ValueError for another word."""
    if text not in REMOTE_MODES:
        raise ValueError(" or ".join(REMOTE_MODES))
    return text


def _positive(text: str) -> int | None:
    value = int(text) if re.fullmatch(r"\s*[0-9]{1,9}\s*", text) else 0
    if value < 1:
        raise ValueError("a whole number of 1 or more, of nine digits at most")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("a number of seconds, 0 or more")
    return value


def _some_seconds(text: str) -> float | None:
    return _seconds(text) if text.strip() else None


def _read_by(parse: Callable[[str], Any], default: object, doc: str) -> Any:  # noqa: ANN401
    """A setting that an environment variable gives: how its text is read, its line in the docs."""
    return field(default=default, metadata={"parse": parse, "doc": doc})


@dataclass(frozen=True)
class Settings:
    """All settings at one moment: the environment, with what ``tileops.option`` overrides.

    Paths are absolute or begin with ``~``, which is not expanded: where it is used there may be no
    home. A relative one is left where the working directory is gone.
    """

    cache_dir: str | None = _read_by(_path, None, "Directory of the cache.")
    cache_path: tuple[str, ...] = _read_by(
        _paths, (), "Read-only layers, searched in order before the private directory."
    )
    # bytes; None is unlimited
    cache_limit: int | None = _read_by(
        parse_bytes,
        10 * _GIB,
        "Size past which the least recently used entries are removed; `none` for no limit.",
    )
    cache_disable: bool = _read_by(_flag, False, "Use no directory: memory only.")
    cache_trust_shared: bool = _read_by(
        _flag,
        False,
        "Use a directory or a bundle that other users can write. Its files are code that will run.",
    )
    cache_keep: tuple[str, ...] = _read_by(
        _words,
        ("all",),
        "Stages stored beside the artifact: `all`, `none`, or file suffixes such as `ptx,ttgir`.",
    )
    cache_lock_seconds: float = _read_by(
        _seconds,
        600.0,
        "Longest wait for another process that compiles the same program; then compile privately.",
    )
    toolchain_match: str = _read_by(
        toolchain_match,
        "missing",
        "Take a program that another compiler made: never (`exact`), where the compiler is "
        "`missing`, or before a compile (`any`).",
    )
    remote: str | None = _read_by(
        remote_url, None, "The fleet cache: `redis://`, `rediss://`, `s3://`, `gs://`, `file://`."
    )
    remote_mode: str = _read_by(
        remote_mode, "read", "`read`, or `readwrite` to write there what is compiled here."
    )
    remote_keys: str | None = _read_by(_path, None, "The keys file that says whom to believe.")
    remote_sign: str | None = _read_by(
        _text, None, "Name of the key that signs; by default the only one that can."
    )
    remote_unsigned: bool = _read_by(
        _flag, False, "Believe whoever can write to the fleet cache. What it holds is code."
    )
    remote_timeout_seconds: float | None = _read_by(
        _some_seconds,
        None,
        "Longest wait for one answer of it; by default 0.25 from Redis, 0.5 from others.",
    )
    remote_lease_seconds: float = _read_by(
        _seconds, 10.0, "Time after which another machine takes over from one that died compiling."
    )
    record: str | None = _read_by(
        _path, None, "File to which each program that is looked up is added, for `prewarm`."
    )
    bundle: tuple[str, ...] = _read_by(
        _paths, (), "Bundles searched before a compile, and what `tileops.load_bundle()` loads."
    )
    installed_bundles: bool = _read_by(
        _flag, True, "Search the bundles of installed packages before a compile."
    )
    strict: bool = _read_by(_flag, False, "Turn every compile into an error naming op and key.")
    sync: bool = _read_by(
        _flag,
        False,
        "Wait for the GPU in each call, so that a fault is the error of the op that caused it.",
    )
    verbose: bool | None = _read_by(
        lambda text: _flag(text) if text.strip() else None,
        None,
        "Default of `verbose=` in jit and compile.",
    )
    log: tuple[str, ...] = _read_by(
        topics, (), "Topics to print on stderr: `compile`, `cache`, `tune`, `all`."
    )
    dump_ir: bool = _read_by(
        _flag,
        False,
        "Write the IR after each pass as `ir/NN_<pass>.txt` into the program's folder.",
    )
    verify_ir: bool = _read_by(
        _flag,
        False,
        "Check the IR's rules after each pass; a fault is an InternalError that names the pass.",
    )
    check: bool = _read_by(
        _flag,
        False,
        "Compile checks of on-chip indices into kernels; a failure names the program's line.",
    )
    debug_cpu: bool = False  # set by option.debug.cpu alone
    debug_nans: bool = True
    target: str | None = _read_by(
        _text, None, "Default of `target=`, such as `cuda:sm_90` or `cpu`."
    )
    cxx: str | None = _read_by(_text, None, "C++ compiler for CPU kernels.")
    nvrtc: str | None = _read_by(_path, None, "The libnvrtc.so that compiles CUDA C++.")
    compile_workers: int | None = _read_by(
        _positive, None, "Parallel compiles in par_compile and warmup."
    )
    tune_workers: int | None = _read_by(
        _positive,
        None,
        "Processes that compile configs for the autotuner; by default the usable processors.",
    )
    tune_cache_disable: bool = _read_by(
        _flag,
        False,
        "Neither read nor write results of tunings; compiled programs are cached as usual.",
    )
    tune_again: bool = False  # set by `tune run --again` alone
    home: str | None = _read_by(
        _text, None, "Where `~` is; the cache's last default is `~/.cache/tileops`."
    )
    xdg_cache_home: str | None = _read_by(_text, None, "`$XDG_CACHE_HOME/tileops` is the default.")


@dataclass(frozen=True)
class Variable:
    """One environment variable: its field, how its text is read, and its line in the docs."""

    name: str
    field: str
    parse: Callable[[str], Any]
    doc: str


_OF_ALL = ("home", "xdg_cache_home")  # variables that other programs read too
VARIABLES = tuple(
    Variable(
        each.name.upper() if each.name in _OF_ALL else f"TILEOPS_{each.name.upper()}",
        each.name,
        each.metadata["parse"],
        each.metadata["doc"],
    )
    for each in fields(Settings)
    if each.metadata
)

_BY_NAME = {variable.name: variable for variable in VARIABLES}
_NAMES = frozenset(f.name for f in fields(Settings))
# Fields that change code: kernels that are loaded were compiled without the change.
_OF_CODE = frozenset({"check", "debug_cpu", "debug_nans"})
_overrides: dict[str, Any] = {}
_on_code_change: list[Callable[[], Callable[[], None]]] = []
UNSET = object()


@dataclass
class _Reading:
    """The settings inside ``read_once``, and what was found from them."""

    settings: Settings | None = None
    found: dict[Callable[[Settings], Any], Any] = field(default_factory=dict)


class _OfThread(threading.local):
    """A thread's own: what a context of asyncio copied would outlive the reading."""

    reading: _Reading | None = None


_now = _OfThread()


@contextmanager
def read_once() -> Iterator[None]:
    """Inside, this thread reads the settings once, and again after it overrides one itself."""
    if _now.reading is not None:
        yield
        return
    _now.reading = _Reading()
    try:
        yield
    finally:
        _now.reading = None


def current() -> Settings:
    """The settings of this moment; ArgumentError naming a variable whose text cannot be read."""
    reading = _now.reading
    if reading is None:
        return _read()
    if reading.settings is None:
        reading.settings = _read()
    return reading.settings


def derived(find: Callable[[Settings], _T]) -> _T:
    """What ``find`` finds from the current settings: once inside ``read_once``, else each time."""
    now, reading = current(), _now.reading
    found: dict[Any, _T] = {} if reading is None else reading.found
    if find not in found:
        found[find] = find(now)
    return found[find]


def _read() -> Settings:
    values: dict[str, Any] = {}
    # Each variable that is set, not each that could be: asking for one that is not costs more.
    for name in os.environ:
        variable = _BY_NAME.get(name)
        text = None if variable is None else os.environ.get(name)
        if variable is None or text is None:  # unset meanwhile
            continue
        try:
            values[variable.field] = variable.parse(text)
        except ValueError as error:
            given = "" if variable.parse is remote_url else f"={text!r}"  # it may hold a password
            raise ArgumentError(f"environment variable {name}{given}: expected {error}") from None
    with forks.guard:
        values.update(_overrides)
    return Settings(**values)


def override(name: str, value: object) -> object:
    """Set a field over the environment, or remove it (``UNSET``); returns what stood there."""
    if name not in _NAMES:
        raise ArgumentError(f"no setting {name!r}; expected one of {', '.join(sorted(_NAMES))}")
    with forks.guard:
        previous = _overrides.get(name, UNSET)
        if value is UNSET:
            _overrides.pop(name, None)
        else:
            _overrides[name] = value
        if _now.reading is not None:
            _now.reading = _Reading()
        # Under the guard: no child has the new setting and the old kernels.
        is_code_changed = name in _OF_CODE and previous is not value
        finish = [forget() for forget in _on_code_change] if is_code_changed else []
    for each in finish:
        each()
    return previous


def clear_overrides() -> None:
    """Forget everything that ``override`` set."""
    for name in tuple(_overrides):
        override(name, UNSET)


def on_code_change(forget: Callable[[], Callable[[], None]]) -> None:
    """Call ``forget`` whenever an override changes what code is compiled.

    It runs under ``forks.guard`` and waits for nothing; what it returns is called afterwards.
    """
    _on_code_change.append(forget)


def find_program(name: str) -> str | None:
    """The absolute path of the program that a shell would run as ``name`` now; None if none."""
    found = shutil.which(name)
    try:
        return found and os.path.abspath(found)  # noqa: PTH100
    except OSError:  # the working directory was deleted
        return found


def compiler_environment(folder: str) -> dict[str, str]:
    """All that compilers, assemblers and linkers see of the environment.

    The user's ``PATH``, in which g++ looks for its assembler and linker, and constants; ``folder``
    is for temporary files. Anything else, such as ``LIBRARY_PATH``, could change code unseen.
    """
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return {
        # Absolute parts only: compilers run in a folder of their own.
        "PATH": os.pathsep.join(part for part in folders if part.startswith("/")),
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": "0",
        "TMPDIR": folder,
        # Debug information names the working directory by this text, the same for every folder.
        "PWD": WORKING_DIRECTORY,
    }


WORKING_DIRECTORY = "/proc/self/cwd"


def names_beginning(prefixes: tuple[str, ...]) -> list[str]:
    """The names of the environment's variables that begin with one of ``prefixes``, sorted."""
    return sorted(name for name in os.environ if name.startswith(prefixes))


def child_environment(
    extra: Mapping[str, str] | None = None, *, drop: tuple[str, ...] = ()
) -> dict[str, str]:
    """The environment, without names that start with a ``drop`` prefix, for a child process."""
    kept = {k: v for k, v in os.environ.items() if not (drop and k.startswith(drop))}
    kept.update(extra or {})
    return kept


def module_environment(
    extra: Mapping[str, str] | None = None, *, drop: tuple[str, ...] = ()
) -> dict[str, str]:
    """``child_environment`` for ``python -m`` with a module of this package, in ``PACKAGE_ROOT``.

    Python looks for modules in the working directory first: ``PYTHONPATH`` becomes absolute.
    """
    found = child_environment(extra, drop=drop)
    given = [p for p in found.get("PYTHONPATH", "").split(os.pathsep) if p]
    folders = [PACKAGE_ROOT, *map(os.path.abspath, given)]
    return {**found, "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}


def as_environment() -> dict[str, str]:
    """The variables that give another process the settings of this one, overrides included."""
    now = current()
    found: dict[str, str] = {}
    for variable in VARIABLES:
        value = getattr(now, variable.field)
        if value is None and variable.parse is not parse_bytes:
            continue
        found[variable.name] = _as_text(value, os.pathsep if variable.parse is _paths else ",")
    return found


def _as_text(value: object, separator: str) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(int(value))
        case tuple():
            return separator.join(value)
        case _:
            return str(value)
