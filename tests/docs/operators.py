"""The generator of the tables of docs/operators.md, from the records of the operators.

``python -m tests.docs.operators`` writes the page.
"""

from __future__ import annotations

import inspect
import re

from tests.docs.examples import ROOT
from tileops.ops import choosing
from tileops.ops.info import OpInfo, infos

PAGE = ROOT / "docs/operators.md"
BEGIN, END = "<!-- generated: {} -->\n", "<!-- end of generated -->"


def signature(info: OpInfo) -> str:
    """The names of the arguments; those after ``*`` are passed by name."""
    words = []
    for name, parameter in inspect.signature(info.call).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(name)
    return f"`{info.name}({', '.join(words)})`"


def functions() -> str:
    rows = "".join(f"| {signature(info)} | {info.summary} |\n" for info in infos())
    return f"| function | computes |\n|---|---|\n{rows}"


def transforms() -> str:
    head = "| function | gradients | autocast | forms that are tested | `torch.compile`, inference / training |\n|---|---|---|---|---|\n"
    rows = []
    for info in infos():
        autocast = "computes in its dtype" if info.lowers else "keeps the dtype"
        gradients = "yes" if info.has_gradients else "refused"
        forms = ", ".join(form.name for form in info.forms)
        widest = choosing.TABLE["widest_decomposed_row"][info.name]
        graph = " / ".join(_choice(widest[kind]) for kind in ("inference", "training"))
        rows.append(f"| `{info.name}` | {gradients} | {autocast} | {forms} | {graph} |\n")
    return head + "".join(rows)


def _choice(widest: int | None) -> str:
    if widest == 0:
        return "the op"
    return "torch operations" + ("" if widest is None else f" up to {widest} columns")


PARTS = {"functions": functions, "transforms": transforms}


def page(text: str) -> str:
    """The page with its generated parts made anew."""
    for name, part in PARTS.items():
        begin = BEGIN.format(name)
        pattern = re.escape(begin) + ".*?" + re.escape(END)
        if not re.search(pattern, text, re.DOTALL):
            raise ValueError(f"{PAGE.name} has no part {name!r}")
        new = f"{begin}{part()}{END}"
        text = re.sub(pattern, lambda _, new=new: new, text, count=1, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
