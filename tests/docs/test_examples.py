"""Every example of the documents runs on the CPU and holds what it asserts."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

import tileops.language as T
from tests.docs.examples import DOCUMENTS, ROOT, Example, examples

# support.md is a generated table.
OTHERS = tuple(
    p for p in sorted((ROOT / "docs").glob("*.md")) if p.name not in ("language.md", "support.md")
)
PAGES = (*DOCUMENTS, *OTHERS)
EXAMPLES = examples(PAGES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example_runs(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes
    file = tmp_path / "example.py"
    file.write_text(example.text)
    runpy.run_path(str(file))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
def test_the_example_checks_its_own_result(example: Example) -> None:
    nodes = list(ast.walk(ast.parse(example.text)))
    if any(isinstance(node, ast.FunctionDef) for node in nodes):
        assert any(isinstance(node, ast.Assert) for node in nodes)


def test_every_construct_is_described() -> None:
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in DOCUMENTS)))
    missing = [name for name in T.__all__ if name not in words | {"PrimExpr", "Var"}]
    assert [name for name in missing if not name.startswith("__")] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_the_page_opens_with_what_it_is_for_and_a_program(path: Path) -> None:
    title, purpose, program = path.read_text().split("\n\n")[:3]
    assert title.startswith("# ")
    assert purpose[0].isalpha()
    assert program.startswith("```python")
    opening = path.read_text().split("\n## ")[0]
    assert "@tileops.jit" in opening or "from tileops import ops" in opening


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)  # a[i](x) is code
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (path.parent / target).exists(), target


def test_the_site_has_every_page() -> None:
    listed = re.findall(r"[\w/]+\.md", (ROOT / ".ci/mkdocs.yml").read_text())
    pages = [str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)
