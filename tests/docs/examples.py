"""The examples in the documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "docs/language.md", *sorted((ROOT / "docs/constructs").glob("*.md")))
PRELUDE = "import torch, tileops\nimport tileops.language as T\n"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One fenced example: where it stands, and its text with the lines that every one starts with."""

    document: str
    line: int
    text: str

    @property
    def id(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def name(self) -> str:
        """The name of the first function, which is its program or a part of it."""
        found = re.search(r"^def (\w+)", self.text, re.MULTILINE)
        return found.group(1) if found else ""


def examples(documents: tuple[Path, ...] = DOCUMENTS) -> list[Example]:
    """All examples of the documents, in order."""
    found = []
    for path in documents:
        text = path.read_text()
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            found.append(Example(str(path.relative_to(ROOT)), line, PRELUDE + match.group(1)))
    return found
