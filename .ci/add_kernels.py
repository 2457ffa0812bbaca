"""Put a bundle into a wheel of tileops, as ``tileops/_kernels``.

    python .ci/add_kernels.py WHEEL BUNDLE

The wheel is replaced in one step. Equal wheels and bundles give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

MOST_BYTES = 30 * 2**20  # of the bundle in the wheel, compressed
FOLDER = "tileops/_kernels"


def line(name: str, data: bytes) -> str:
    """What RECORD says of a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}"


def add(wheel: Path, bundle: Path) -> int:
    """Write the wheel anew with the files of the bundle; returns how many bytes they take in it."""
    made = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as old:
        kept = [each for each in old.infolist() if not each.filename.startswith(f"{FOLDER}/")]
        record = next(each for each in kept if each.filename.endswith(".dist-info/RECORD"))
        lines = [
            text
            for text in old.read(record).decode().splitlines()
            if not text.startswith((f"{FOLDER}/", f"{record.filename},"))
        ]
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
            for each in kept:
                if each is not record:
                    new.writestr(each, old.read(each))
            for path in sorted(path for path in bundle.rglob("*") if path.is_file()):
                name = f"{FOLDER}/{path.relative_to(bundle).as_posix()}"
                data = path.read_bytes()
                lines.append(line(name, data))
                new.writestr(_info(name, record), data)
            lines.append(f"{record.filename},,")
            new.writestr(_info(record.filename, record), "\n".join(lines) + "\n")
            size = sum(e.compress_size for e in new.infolist() if e.filename.startswith(FOLDER))
    made.replace(wheel)
    return size


def _info(name: str, like: zipfile.ZipInfo) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name, like.date_time)
    made.compress_type = zipfile.ZIP_DEFLATED
    made.external_attr = like.external_attr
    return made


if __name__ == "__main__":
    wheel, bundle = map(Path, sys.argv[1:])
    taken = add(wheel, bundle)
    print(f"{wheel}: {wheel.stat().st_size / 2**20:.1f} MiB, {taken / 2**20:.1f} MiB are kernels")
    if taken > MOST_BYTES:
        sys.exit(f"the kernels take more than {MOST_BYTES / 2**20:.0f} MiB: fewer sizes or targets")
