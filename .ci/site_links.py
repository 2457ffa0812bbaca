"""A hook of mkdocs: a link to a file that is not of the site becomes its path in the sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """The text of ``page`` with such links replaced."""
    folder = Path(page.file.abs_src_path).parent

    def within(match: re.Match[str]) -> str:
        words, target = match.group(1), match.group(2)
        path = (folder / target).resolve()
        if "://" in target or path.is_relative_to(ROOT / "docs") or not path.exists():
            return match.group(0)
        shown = str(path.relative_to(ROOT))
        return f"`{shown}`" if words in (shown, path.name) else f"{words} (`{shown}`)"

    return _LINK.sub(within, markdown)
