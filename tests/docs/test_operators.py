"""The generated parts of the page of the operators are current."""

from __future__ import annotations

from tests.docs.operators import PAGE, page
from tileops import ops
from tileops.ops import FAMILIES
from tileops.ops.info import infos


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "python -m tests.docs.operators writes it"


def test_every_operator_has_a_record() -> None:
    names = sorted(name for family in FAMILIES.values() for name in family)
    assert names == [info.name for info in infos()]
    assert all(info.call is getattr(ops, info.name) for info in infos())
