"""The command ``python -m tileops remote``: what is in the fleet cache, and is it right."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tileops import option, settings
from tileops.cache import catalog, keys, store
from tileops.cache.entry import DamagedError, Entry
from tileops.cache.envelope import UntrustedEnvelopeError
from tileops.cache.files import write_file
from tileops.cache.remote import doctor, fleet, upkeep
from tileops.cache.remote.stores import ENTRIES, RemoteError
from tileops.cli import subcommands
from tileops.errors import CacheError
from tileops.jit import bundle_writer


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``remote`` with its subcommands."""
    add = subcommands(commands, "remote", "look at, fill and trim the fleet cache")
    pushed = add("push", push, "write entries of this machine's cache to the remote")
    pulled = add("pull", pull, "fetch entries into this machine's cache, or a folder")
    pulled.add_argument("--bundle", type=Path, metavar="DIR", help="into this folder (see docs)")
    listed = add("ls", list_entries, "one line per entry, last used first", json=True)
    verified = add("verify", verify, "fetch and check every entry and pointer", json=True)
    verified.add_argument("--repair", action="store_true", help="remove what is not right")
    pruned = add("prune", prune, "remove what is old or too much", json=True)
    pruned.add_argument("--days", type=float, help="unused for so many days")
    pruned.add_argument("--limit", help="down to this size, such as 50GiB")
    asked = add("doctor", diagnose, "try all that a machine does with the remote", json=True)
    for parser in (pushed, pulled):
        parser.add_argument("hash", nargs="*", help="first digits of entries (default: all)")
    for parser in (pushed, pulled, listed, verified, pruned, asked):
        add_remote_options(parser)
    made = add("keygen", generate, "make a key, and a keys file for machines that only read")
    made.add_argument("file", type=Path, help="new keys file of the machines that sign")
    made.add_argument("--kid", required=True, help="name of the key, such as ci-2026")
    made.add_argument("--alg", choices=(keys.ED25519, keys.HMAC), default=keys.ED25519)
    made.add_argument("--not-after", metavar="DATE", help="such as 2027-06-30")
    made.add_argument("--public", type=Path, help="new keys file of all others (ed25519)")


def add_remote_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a remote, its keys and the key that signs."""
    parser.add_argument("--remote", metavar="URL", help="default: TILEOPS_REMOTE")
    parser.add_argument("--keys", metavar="FILE", help="default: TILEOPS_REMOTE_KEYS")
    parser.add_argument("--sign", metavar="KID", help="the key that signs")


def is_named(options: argparse.Namespace) -> bool:
    """True if a remote is named, here or in the environment."""
    return options.remote is not None or settings.current().remote is not None


@contextmanager
def named(options: argparse.Namespace, *, writes: bool = False) -> Iterator[upkeep.Upkeep]:
    """The remote that is named; faults of the remote are CacheErrors."""
    url = options.remote or settings.current().remote
    if url is None:
        raise CacheError("name a remote: --remote URL, or TILEOPS_REMOTE")
    mode = "readwrite" if writes else "read"
    with option.remote(url, mode=mode, sign=options.sign, keys=options.keys):
        found = fleet.current()
        if found is None:
            raise CacheError(f"{url} names no remote")
        try:
            found.ring()
            if writes:
                found.signer()
            yield upkeep.Upkeep(found)
        except RemoteError as error:
            raise CacheError(f"remote: {error}") from None


def _local(prefixes: list[str]) -> list[Entry]:
    if prefixes:
        return [catalog.find(prefix) for prefix in prefixes]
    whole = [item for item in catalog.items() if item.problem is None]
    return [catalog.find(item.hash) for item in whole]


def push(options: argparse.Namespace) -> int:
    """Write entries; 1 if one could not be written."""
    problems: list[str] = []
    entries = _local(options.hash)
    with named(options, writes=True) as remote:
        count = push_entries(remote, entries, problems)
        left = len(entries) - count - len(problems)
        print(f"{count} written to {remote.shown}, {left} there already")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def push_entries(remote: upkeep.Upkeep, entries: Iterable[Entry], problems: list[str]) -> int:
    """Write those that are not there, whole and trusted; how many that were."""
    count = 0
    for entry in entries:
        try:
            count += remote.push(entry)
        except (RemoteError, CacheError, DamagedError) as error:
            problems.append(f"{entry.hash[:12]}: {error}")
    return count


def pull(options: argparse.Namespace) -> int:
    """Fetch entries; 1 if one was refused."""
    refused, count = [], 0
    folder = options.bundle
    into = folder if folder is not None else settings.current().cache_dir
    with named(options) as remote, option.cache_dir(into):
        for name in remote.names(options.hash):
            try:
                entry = remote.fetch(name)
            except (DamagedError, UntrustedEnvelopeError) as error:
                refused.append(f"refused: {name[:12]}: {error}")
                continue
            if store().add(entry).path is None:
                raise CacheError(f"{name[:12]} cannot be stored")
            count += 1
    if folder is not None:
        _make_bundle(folder)
    for line in refused:
        print(line)
    print(f"{count} entries" + (f" in {folder}" if folder is not None else ""))
    return 1 if refused else 0


def _make_bundle(folder: Path) -> None:
    """Let ``TILEOPS_BUNDLE`` name the folder: a bundle that serves programs and has no ops."""
    index = folder / "bundle.json"
    (folder / "ops").mkdir(exist_ok=True)
    (folder / "programs").mkdir(exist_ok=True)
    if not index.exists():
        write_file(index, (json.dumps({"format": bundle_writer.FORMAT, "ops": {}}) + "\n").encode())


def list_entries(options: argparse.Namespace) -> int:
    """Print one line per entry."""
    with named(options) as remote:
        found = sorted(remote.items(ENTRIES), key=lambda item: -item.used_at)
    if options.json:
        rows = [
            {"hash": i.name.removeprefix(ENTRIES), "bytes": i.size, "used_at": i.used_at}
            for i in found
        ]
        print(json.dumps(rows, indent=1))
        return 0
    for item in found:
        days = (time.time() - item.used_at) / 86400
        print(f"{item.name.removeprefix(ENTRIES)[:12]!s:12}  {item.size:>10}  {days:.1f} days")
    print(f"{len(found)} entries, {sum(item.size for item in found)} bytes")
    return 0


def verify(options: argparse.Namespace) -> int:
    """Check everything; 1 if something is not right and is still there."""
    with named(options, writes=False) as remote:
        results = list(remote.verify())
        wrong = [result for result in results if result.problem is not None]
        if options.repair:
            for result in wrong:
                remote.store.delete(result.name)
    if options.json:
        print(json.dumps([vars(result) for result in results], indent=1))
    else:
        for result in wrong:
            print(f"{result.name}: {result.problem}")
        removed = len(wrong) if options.repair else 0
        print(f"{len(results)} objects, {len(wrong)} not right, {removed} removed")
    return 1 if wrong and not options.repair else 0


def prune(options: argparse.Namespace) -> int:
    """Remove what is old, past the limit, or leads nowhere."""
    try:
        limit = None if options.limit is None else settings.parse_bytes(options.limit)
    except ValueError as error:
        raise CacheError(f"--limit {options.limit}: expected {error}") from None
    with named(options) as remote:
        removed = remote.prune(options.days, limit)
    print(json.dumps({"removed": removed}) if options.json else f"{len(removed)} objects removed")
    return 0


def diagnose(options: argparse.Namespace) -> int:
    """Try everything that a machine does; 1 if something does not work."""
    url = options.remote or settings.current().remote
    if url is None:
        raise CacheError("name a remote: --remote URL, or TILEOPS_REMOTE")
    mode = settings.current().remote_mode
    with option.remote(url, mode=mode, sign=options.sign, keys=options.keys):
        found = fleet.current()
        checks = [] if found is None else list(doctor.examine(found))
    if options.json:
        print(json.dumps([vars(check) for check in checks], indent=1))
    else:
        for check in checks:
            print(f"{'ok' if check.ok else 'PROBLEM':7}  {check.name}: {check.says}")
    return 0 if all(check.ok for check in checks) else 1


def generate(options: argparse.Namespace) -> int:
    """Write a new key, readable by this user alone, and what others need of it."""
    item, has_public = keys.generate(options.kid, options.alg, options.not_after)
    if options.public is not None and not has_public:
        raise CacheError(f"{options.alg} has no public half: whoever verifies can sign")
    _write_keys(options.file, item, 0o600)
    if options.public is not None:
        public = {name: value for name, value in item.items() if name != "private"}
        _write_keys(options.public, public, 0o644)
    print(f"{options.kid} ({options.alg}) in {options.file}")
    return 0


def _write_keys(path: Path, item: dict[str, Any], mode: int) -> None:
    text = json.dumps({"keys": [item], "revoked": {"kids": [], "entries": []}}, indent=1) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
