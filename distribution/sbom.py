"""The software bill of materials of a wheel: CycloneDX, in ``.dist-info/sboms`` (PEP 770).

It names what is compiled in, what the wheel needs, the digests of its binaries and the tools that
made them. The same build writes the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

NAME = "tileops-torch.cdx.json"


def describe(
    *,
    name: str,
    version: str,
    epoch: int,
    requirements: Iterable[str],
    optional: Iterable[str],
    compiled_in: Mapping[str, tuple[str, str]],
    tools: Mapping[str, str],
    binaries: Mapping[str, Path],
) -> str:
    """The bill as JSON.

    ``compiled_in`` has version and licence by package; ``tools`` versions by name; ``binaries`` the
    files by their names in the wheel.
    """
    own = _package(name, version, licence="Apache-2.0")
    parts = [_package(each, *facts, scope="required") for each, facts in compiled_in.items()]
    parts += [_package(_project(text), scope="required", needs=text) for text in requirements]
    parts += [_package(_project(text), scope="optional", needs=text) for text in optional]
    parts += [_file(each, path) for each, path in sorted(binaries.items())]
    found: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).isoformat(),
            "tools": {
                "components": [
                    {"type": "application", "name": tool, "version": text}
                    for tool, text in sorted(tools.items())
                ]
            },
            "component": own,
        },
        "components": parts,
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": sorted(part["bom-ref"] for part in parts)}
        ],
    }
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    found["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, digest).urn
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _project(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return match.group().lower()


def _package(
    name: str, version: str = "", licence: str = "", scope: str = "", needs: str = ""
) -> dict[str, Any]:
    url = f"pkg:pypi/{name}" + (f"@{version}" if version else "")
    found: dict[str, Any] = {"type": "library", "bom-ref": url, "name": name, "purl": url}
    if version:
        found["version"] = version
    if licence:
        found["licenses"] = [{"license": {"id": licence}}]
    if scope:
        found["scope"] = scope
    if needs:
        found["properties"] = [{"name": "python:requirement", "value": needs}]
    return found


def _file(name: str, path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
