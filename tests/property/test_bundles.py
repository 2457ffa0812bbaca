"""Random pairs of bundles: their ops join where they are one program, else nothing of the second is there.

``TILEOPS_RANDOM_BUNDLES`` sets how many pairs (60 by default); ``TILEOPS_RANDOM_SEED`` says which.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tileops import option
from tileops.errors import ArgumentError, CompileMissError

COUNT = int(os.environ.get("TILEOPS_RANDOM_BUNDLES", "60"))
FIRST = int(os.environ.get("TILEOPS_RANDOM_SEED", "0"))
SIZES = (5, 16)
MODES = (0, 1)
PLACES = tuple(itertools.product(MODES, SIZES))


def _scaled(namespace: str, scale: float, offset: float) -> object:
    @tileops.jit(name=f"{namespace}::joined")
    def joined(X, mode: int = 0):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(1):
            for i in T.Parallel(N):
                Y[i] = X[i] * scale + (offset if mode else 0.0)
        return Y

    return joined


# Programs of one name; the last two differ for one mode alone.
PROGRAMS = [(2.0, 1.0), (3.0, 1.0), (2.0, 5.0)]


@dataclass(frozen=True)
class Made:
    """A bundle: the program in it, the (mode, size) that it has, and whether it can be joined."""

    path: Path
    program: int
    places: frozenset[tuple[int, int]]
    is_joinable: bool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    folder = tmp_path_factory.mktemp("pool")
    made = []
    for number, (scale, offset) in enumerate(PROGRAMS):
        program = _scaled(f"pool{number}", scale, offset)
        for count, places in enumerate(_choices(random.Random(number))):
            configs = [{"mode": mode, "N": size} for mode, size in places]
            path = tileops.bundle(folder / f"{number}_{count}", [(program, configs)], "cpu")
            made.append(Made(path, number, frozenset(places), True))
        old = shutil.copytree(made[-1].path, folder / f"{number}_old")
        as_format_1(old)
        made.append(Made(old, number, made[-1].places, False))
    return made


def _choices(rng: random.Random) -> list[tuple[tuple[int, int], ...]]:
    subsets = [s for n in range(1, len(PLACES) + 1) for s in itertools.combinations(PLACES, n)]
    return [PLACES, *rng.sample(subsets[:-1], 5)]


def as_format_1(bundle: Path) -> None:
    """Take from a bundle what format 2 has added."""
    index = json.loads((bundle / "bundle.json").read_text())
    for name in index["ops"]:
        path = bundle / "ops" / name / "op.json"
        document = json.loads(path.read_text())
        document["format"] = 1
        for key in ("definition", "parts"):
            del document[key]
        for variant in document["variants"]:
            del variant["digest"]
        data = json.dumps(document).encode()
        path.write_bytes(data)
        index["ops"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (bundle / "bundle.json").write_text(json.dumps(index))


def one_by_one(bundles: Sequence[Made], namespace: str) -> int:
    """How many of the bundles are taken before one is refused."""
    for number, bundle in enumerate(bundles):
        try:
            tileops.load_bundle(bundle.path, namespace=namespace)
        except ArgumentError as error:
            _check_message(str(error), bundle, bundles[:number])
            return number
    return len(bundles)


def all_at_once(bundles: Sequence[Made], namespace: str) -> int:
    """None or all of them: a refused bundle leaves nothing of the others."""
    with option.Override(bundle=tuple(str(b.path) for b in bundles)):
        try:
            tileops.load_bundle(namespace=namespace)
        except ArgumentError:
            return 0
    return len(bundles)


def from_c(bundles: Sequence[Made], namespace: str) -> int:
    library = ctypes.CDLL(str(Path(tileops.__file__).parent / "libtileops.so"))
    library.tileops_last_error.restype = ctypes.c_char_p
    for number, bundle in enumerate(bundles):
        options = json.dumps({"namespace": namespace}).encode()
        if library.tileops_load_bundle_ex(str(bundle.path).encode(), options) != 1:
            message = library.tileops_last_error().decode()
            assert message.startswith("ArgumentError: ")
            _check_message(message, bundle, bundles[:number])
            return number
    return len(bundles)


def _check_message(message: str, refused: Made, before: Sequence[Made]) -> None:
    # The file that is refused, and that of a bundle that has the name.
    assert str(refused.path) in message
    assert any(str(b.path) in message for b in before)
    assert "namespace" in message


WAYS: list[Callable[[Sequence[Made], str], int]] = [one_by_one, all_at_once, from_c]


def expected_count(bundles: Sequence[Made], way: Callable[[Sequence[Made], str], int]) -> int:
    for number, bundle in enumerate(bundles):
        for other in bundles[:number]:
            same = bundle.program == other.program and bundle.is_joinable and other.is_joinable
            if bundle.path != other.path and not same:
                return 0 if way is all_at_once else number
    return len(bundles)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_pairs(pool: list[Made], seed: int) -> None:
    rng = random.Random(seed)
    bundles = rng.choices(pool, k=rng.choice((2, 2, 2, 3)))
    if rng.random() < 0.5:  # the same program, as chance seldom has it
        bundles = [
            rng.choice([b for b in pool if b.program == bundles[0].program]) for b in bundles
        ]
    way, namespace = rng.choice(WAYS), f"pairs{seed}"
    taken = way(bundles, namespace)
    assert taken == expected_count(bundles, way), (way.__name__, bundles)
    if taken == 0:
        assert not hasattr(getattr(torch.ops, namespace), "joined")
        return
    scale, offset = PROGRAMS[bundles[0].program]
    op = getattr(torch.ops, namespace).joined
    have = frozenset().union(*(b.places for b in bundles[:taken]))
    for mode, size in PLACES:
        x = torch.randn(size)
        if (mode, size) in have:
            assert torch.equal(op(x, mode=mode), x * scale + (offset if mode else 0.0))
        else:
            with pytest.raises(CompileMissError, match=f"{namespace}::joined: no kernel"):
                op(x, mode=mode)
