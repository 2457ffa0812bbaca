"""A real program called where the cache cannot be used, or not be trusted: what each call saw.

Prints a JSON object of rows by case. What needs root is left out for others.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from tests.cache.forked import call, entry, import_everything

UNKNOWN_USER = 1002700000  # such as some container platforms run containers as
PLANTED = {
    "evil.pkl": b"cposix\nsystem\n(S'touch MARKER'\ntR.",
    "params.pkl": b"cposix\nsystem\n(S'touch MARKER'\ntR.",
    "evil.json": b'{"py/object/apply": "os.system", "args": ["touch MARKER"]}',
}


def become_unknown() -> None:
    for name in ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(UNKNOWN_USER)
        os.setuid(UNKNOWN_USER)


def open_for_all(path: Path) -> None:
    """Lets every user reach ``path``."""
    for folder in (path, *path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)


def read_only(root: Path, rows: dict[str, object]) -> None:
    cache = root / "read only"
    call(cache)
    open_for_all(root)
    folders = [cache, *(p for p in cache.rglob("*") if p.is_dir() and not p.is_symlink())]
    for folder in folders:
        folder.chmod(0o555)
    rows["mode 0555, hit"] = call(cache, before=become_unknown)
    rows["mode 0555, miss"] = call(cache, 5.0, before=become_unknown)
    for folder in folders:
        folder.chmod(0o755)


def unusable(root: Path, rows: dict[str, object]) -> None:
    (root / "file").write_text("a file")
    rows["the path is a file"] = call(root / "file")
    work = root / "work"
    work.mkdir()
    work.chmod(0o777)
    os.chdir(work)
    rows["no home, unknown uid"] = call(None, before=become_unknown)
    rows["left in the working directory"] = [p.name for p in work.iterdir()]
    disk = root / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        full = [call(disk / "cache", factor) for factor in (3.0, 5.0, 7.0)]
        rows["a full disk"] = full[-1]
        rows["left on the full disk"] = [
            p.name for p in (disk / "cache" / ".state" / "staging").iterdir()
        ]
        subprocess.run(["umount", str(disk)], check=True)


def untrusted(root: Path, rows: dict[str, object]) -> None:
    def trust() -> None:
        os.environ["TILEOPS_CACHE_TRUST_SHARED"] = "1"

    whole = root / "whole"
    call(whole)
    for name in ("mode 0777", "another user's", "a link", "planted"):
        shutil.copytree(whole, root / name, symlinks=True)
    (root / "mode 0777").chmod(0o777)
    rows["mode 0777"] = call(root / "mode 0777")
    rows["mode 0777, allowed"] = call(root / "mode 0777", before=trust)
    if os.getuid() == 0:
        os.chown(root / "another user's", 12345, 12345)
        rows["another user's"] = call(root / "another user's")
        rows["another user's, allowed"] = call(root / "another user's", before=trust)
    folder = entry(root / "a link")
    shutil.move(folder, root / "elsewhere")
    folder.symlink_to(root / "elsewhere")
    rows["a link"] = call(root / "a link")
    rows["a link, healed"] = call(root / "a link")


def refuse(*args: object, **more: object) -> NoReturn:
    raise AssertionError("pickle was used")


def patch_pickle() -> None:
    for name in ("load", "loads", "Unpickler"):
        setattr(pickle, name, refuse)


def planted(root: Path, rows: dict[str, object]) -> None:
    cache, marker = root / "planted", root / "marker"
    folder = entry(cache)
    scripts = [p.parent for p in (cache / "scripts").rglob("dispatch.json")]
    for place in (cache, folder, cache / "programs", *scripts):
        for name, data in PLANTED.items():
            (place / name).write_bytes(data.replace(b"MARKER", str(marker).encode()))
    rows["planted"] = call(cache, before=patch_pickle)
    rows["planted, a miss"] = call(cache, 5.0, before=patch_pickle)
    rows["the planted code ran"] = marker.exists()


def main(root: Path) -> None:
    rows: dict[str, object] = {}
    import_everything()
    for case in (read_only, unusable, untrusted, planted):
        case(root, rows)
    print(json.dumps(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
