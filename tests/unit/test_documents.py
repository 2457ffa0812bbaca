"""The documents: the settings table is complete, links lead somewhere, programs are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tileops import option, settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "third_party").glob("*.md"),
]  # fmt: skip

# Settings that have a function of their own name in tileops.option.
_OPTIONS = {name: f"`option.{name}`" for name in vars(option) if not name.startswith("_")}
_OPTIONS["dump_ir"] = "`option.debug.dump_ir`"
_OPTIONS["verify_ir"] = "`option.debug.verify_ir`"


def settings_table() -> str:
    """The table of settings as docs/cache.md must have it."""
    default = settings.Settings()
    lines = ["| variable | in code | default | meaning |", "|---|---|---|---|"]
    for variable in settings.VARIABLES:
        value = getattr(default, variable.field)
        text = {None: "–", (): "–", False: "0", True: "1", 10 << 30: "10GiB"}.get(value, value)
        text = ",".join(text) if isinstance(text, tuple) else text
        where = _OPTIONS.get(variable.field, "–")
        lines.append(f"| `{variable.name}` | {where} | {text} | {variable.doc} |")
    return "\n".join(lines)


def test_the_settings_table_is_complete() -> None:
    assert settings_table() in (ROOT / "docs" / "cache.md").read_text()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        assert (path.parent / target).exists(), target


def test_the_readme_shows_the_program_that_the_quickstart_runs() -> None:
    start = "@tileops.jit\ndef matmul_relu"
    readme = (ROOT / "README.md").read_text()
    example = (ROOT / "examples" / "quickstart.py").read_text()
    program = example[example.index(start) :].split("\n\n")[0]
    assert program.rstrip() in readme


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100
