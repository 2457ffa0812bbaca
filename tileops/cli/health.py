"""The command ``python -m tileops health``: whether this machine can serve."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tileops import settings
from tileops.cache import staging
from tileops.cache.directory import here
from tileops.cli import environment
from tileops.errors import TileopsError
from tileops.target import host_cpu_level, parse_target

GOOD, DEGRADED, FAILING = 0, 1, 2
_WORDS = ("ok", "degraded", "failing")


@dataclass(frozen=True)
class Check:
    """One part that was looked at: its state (0 good, 1 degraded, 2 failing) and what was found."""

    name: str
    state: int
    text: str


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``health``."""
    parser = commands.add_parser(
        "health", help="whether this machine can serve; exit status 0, 1 (degraded) or 2 (failing)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument(
        "--bundle", action="append", default=[], metavar="PATH",
        help="a bundle that must load, beside those of TILEOPS_BUNDLE; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--remote", action="store_true",
        help="also try the remote that the settings name: its keys, server, speed and writing",
    )  # fmt: skip
    parser.set_defaults(run=show_health)


def show_health(options: argparse.Namespace) -> int:
    """Print each check; the status is that of the worst."""
    found = checks(options.bundle) + (_remote() if options.remote else [])
    state = max(check.state for check in found)
    if options.json:
        listed = [asdict(check) | {"state": _WORDS[check.state]} for check in found]
        print(json.dumps({"status": _WORDS[state], "checks": listed}, indent=1))
        return state
    width = max(len(check.name) for check in found)
    for check in found:
        print(f"{_WORDS[check.state]:8}  {check.name:{width}}  {check.text}")
    return state


def checks(bundles: list[str]) -> list[Check]:
    """Everything that serving needs, each looked at once."""
    runtime = _runtime()
    found = [_torch(), runtime, _cache(), _compiler(), _cuda()]
    if runtime.state == GOOD:
        found += [_bundle(path) for path in (*settings.current().bundle, *bundles)]
    return found


def _torch() -> Check:
    try:
        import torch
    except ImportError as error:
        return Check("torch", FAILING, f"{error}: pip install 'torch>=2.10'")
    return Check("torch", GOOD, str(torch.__version__))


def _runtime() -> Check:
    try:
        from tileops import runtime

        runtime.counters()
    except (ImportError, OSError, TileopsError) as error:
        return Check("runtime", FAILING, f"the native runtime does not load: {error}")
    return Check("runtime", GOOD, f"tileops {environment.version()}")


def _cache() -> Check:
    if settings.current().cache_disable:
        return Check("cache", GOOD, "memory only, as the settings say")
    where = here()
    problem: object = where.problem
    if where.private is not None:
        try:
            with staging.folder(where.private, "health"):
                return Check("cache", GOOD, str(where.private.root))
        except OSError as error:
            problem = error
    return Check("cache", DEGRADED, f"memory only: {problem}")


def _compiler() -> Check:
    text = environment.compiler_version()
    if text.startswith("not found"):
        return Check("compiler", DEGRADED, f"{text}; CPU kernels come from the cache or a bundle")
    return Check("compiler", GOOD, text)


def _cuda() -> Check:
    try:
        import torch
    except ImportError:
        return Check("cuda", GOOD, "no torch")
    devices = environment.devices()
    if devices:
        return Check("cuda", GOOD, "; ".join(devices))
    if torch.version.cuda is None:
        return Check("cuda", GOOD, "this torch has no CUDA")
    return Check(
        "cuda", DEGRADED, f"torch is for CUDA {torch.version.cuda}, and no device is usable"
    )


def _bundle(path: str) -> Check:
    from tileops import runtime

    name = f"bundle {path}"
    shared = settings.current().cache_trust_shared
    try:
        texts = runtime.read_bundles([str(Path(path).absolute())], shared=shared, namespace="")
    except TileopsError as error:
        return Check(name, FAILING, str(error))
    useless = [
        item.name for item in texts if not any(map(_runs_here, _targets(json.loads(item.text))))
    ]
    if useless:
        return Check(name, FAILING, f"no kernel for this machine: {', '.join(sorted(useless))}")
    return Check(name, GOOD, f"{len(texts)} ops")


def _remote() -> list[Check]:
    """What ``remote doctor`` tries; calls go on without a remote, so none of it is failing."""
    from tileops.cache.remote import doctor, fleet

    current = fleet.current()
    if current is None:
        return [Check("remote", DEGRADED, "the settings name none (TILEOPS_REMOTE)")]
    return [
        Check(
            check.name if check.name == "remote" else f"remote {check.name}",
            GOOD if check.ok else DEGRADED,
            check.says,
        )
        for check in doctor.examine(current)
    ]


def _targets(document: Any) -> Iterator[str]:  # noqa: ANN401  (JSON)
    for variant in document["variants"]:
        for entry in variant["entries"]:
            yield entry["target"]


def _runs_here(text: str) -> bool:
    target = parse_target(text)
    if target.kind == "cpu":
        return target.arch <= host_cpu_level()
    import torch

    capabilities = {
        torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())
    }
    return any(target.arch.rstrip("af") == f"sm_{major}{minor}" for major, minor in capabilities)
