"""``frozen`` against ``dataclass(frozen=True)``: the same classes made by both behave alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tileops.frozen import frozen


def _family(decorate: Callable[[type], type]) -> SimpleNamespace:
    @decorate
    class Node:
        """Has a field by name, which takes no part in comparisons."""

        loc: str | None = field(default=None, compare=False, repr=False, kw_only=True)

    @decorate
    class Leaf(Node):
        """A subclass with a required field and one with a default."""

        value: float
        kind: str = "plain"

    @decorate
    class Bare(Node):
        """Adds nothing."""

    @decorate
    class Made:
        """Has a factory and a check."""

        names: tuple[str, ...]
        sizes: dict[str, int] = field(default_factory=dict)
        count: int = field(default=0, kw_only=True)

        def __post_init__(self) -> None:
            if not self.names:
                raise ValueError("no names")
            object.__setattr__(self, "count", len(self.names))

    @decorate
    class Own:
        """Brings methods of its own."""

        text: str

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return f"<{self.text}>"

    return SimpleNamespace(**locals())


OURS, THEIRS = _family(frozen), _family(dataclass(frozen=True))
FAMILIES = pytest.mark.parametrize("of", [OURS, THEIRS], ids=["ours", "theirs"])
NAN = float("nan")
MAKERS: dict[str, Callable[[Any], Any]] = {
    "position": lambda of: of.Leaf(1.0, "odd"),
    "default": lambda of: of.Leaf(1.0),
    "named": lambda of: of.Leaf(kind="odd", value=1.0),
    "another": lambda of: of.Leaf(2.0, "odd"),
    "placed": lambda of: of.Leaf(1.0, "odd", loc="there"),
    "nan": lambda of: of.Leaf(NAN, loc="there"),
    "bare": lambda of: of.Bare(),
    "base": lambda of: of.Node(loc="here"),
    "factory": lambda of: of.Made(("a",)),
    "given": lambda of: of.Made(("a", "b"), {"a": 1}),
    "own": lambda of: of.Own("x"),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_it_shows_and_holds_the_same(maker: str) -> None:
    ours, theirs = MAKERS[maker](OURS), MAKERS[maker](THEIRS)
    assert repr(ours) == repr(theirs)
    assert [f.name for f in fields(ours)] == [f.name for f in fields(theirs)]
    assert repr(dataclasses.asdict(ours)) == repr(dataclasses.asdict(theirs))  # NaN is not itself
    assert ours.__match_args__ == theirs.__match_args__


@pytest.mark.parametrize("left", MAKERS)
@pytest.mark.parametrize("right", MAKERS)
def test_it_compares_the_same(left: str, right: str) -> None:
    ours = MAKERS[left](OURS), MAKERS[right](OURS)
    theirs = MAKERS[left](THEIRS), MAKERS[right](THEIRS)
    assert (ours[0] == ours[1]) == (theirs[0] == theirs[1])
    hashable = not {left, right} & {"factory", "given"}
    if hashable and ours[0] == ours[1]:
        assert hash(ours[0]) == hash(ours[1])


def test_what_holds_a_dict_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(OURS.Made(("a",)))


def test_another_class_with_equal_fields_is_another_value() -> None:
    assert OURS.Node() != OURS.Bare()
    assert OURS.Leaf(1.0) != 1.0


def test_a_hash_tells_values_apart() -> None:
    assert len({OURS.Leaf(float(n)) for n in range(50)} | {OURS.Leaf(3.0)}) == 50


@FAMILIES
@pytest.mark.parametrize(
    "call",
    [
        lambda of: of.Leaf(),
        lambda of: of.Leaf(kind="odd"),
        lambda of: of.Leaf(1.0, "odd", "more"),
        lambda of: of.Leaf(1.0, value=2.0),
        lambda of: of.Leaf(1.0, unknown=2),
        lambda of: of.Bare("there"),
        lambda of: of.Made(sizes={}),
    ],
)
def test_wrong_arguments_are_refused(of: SimpleNamespace, call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        call(of)


def test_the_refusal_names_class_and_fields() -> None:
    with pytest.raises(TypeError, match=r"Leaf: expected value of loc, value, kind; got 0 by .*"):
        OURS.Leaf()


@FAMILIES
def test_it_cannot_be_changed(of: SimpleNamespace) -> None:
    leaf = of.Leaf(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        leaf.value = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        del leaf.value
    with pytest.raises(dataclasses.FrozenInstanceError):
        leaf.more = 2.0


@FAMILIES
def test_replace_changes_what_it_names_and_checks_again(of: SimpleNamespace) -> None:
    assert repr(replace(of.Leaf(1.0, loc="there"), kind="odd")) == repr(of.Leaf(1.0, "odd"))
    assert replace(of.Leaf(1.0, loc="there"), kind="odd").loc == "there"
    assert replace(of.Made(("a",)), names=("a", "b"), count=0).count == 2
    with pytest.raises(ValueError, match="no names"):
        replace(of.Made(("a",)), names=())


@FAMILIES
def test_each_object_gets_what_its_factory_makes(of: SimpleNamespace) -> None:
    one, two = of.Made(("a",)), of.Made(("a",))
    one.sizes["a"] = 1
    assert two.sizes == {}


@frozen
class Kept:
    """At module level, where copies find it."""

    value: tuple[int, ...]
    kind: str = "plain"


@pytest.mark.parametrize("kept", [Kept((1, 2)), Kept((), kind="odd")], ids=repr)
def test_copies_are_equal(kept: Kept) -> None:
    for made in (copy.copy(kept), copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert made == kept
        assert hash(made) == hash(kept)


def test_matching_takes_positions_and_names() -> None:
    match Kept((1, 2), "odd"):
        case Kept((_, second), kind=kind):
            assert (second, kind) == (2, "odd")
        case _:
            raise AssertionError("no match")
