"""The repository speaks of itself alone: no machine's paths, no registry hosts, no notes to self."""

from __future__ import annotations

import re
import subprocess

from tests.architecture.imports import ROOT

# Put together here, so that this file does not hold them.
_WORDS = (
    "/" + "work/", "/" + "opt/pypi", "/" + "root/", "pypi" + r"\.org", "work" + "place",
    "this " + "session", r"issue" + r" #?\d", "CONTRACT" + r"\.md", "DESIGN" + r"\.md",
)  # fmt: skip
_PATTERN = re.compile("|".join(_WORDS))


def _tracked_texts() -> list[tuple[str, str]]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # Without git (an unpacked archive) the source folders are what there is.
    names = done.stdout.split("\0") if done.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [
        path for folder in ("tileops", "csrc", "docs") for path in (ROOT / folder).rglob("*.*")
    ]
    texts = []
    for path in paths:
        if path.is_file() and path.suffix not in (".so", ".pyc", ".png"):
            texts.append((str(path.relative_to(ROOT)), path.read_text(errors="replace")))
    return texts


def test_no_foreign_words() -> None:
    wrong = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in _tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if _PATTERN.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_pattern_sees_what_it_should() -> None:
    assert _PATTERN.search("see /" + "work/main")
    assert _PATTERN.search("as issue" + " #12 says")
    assert not _PATTERN.search("a work item; issues of the instruction")
