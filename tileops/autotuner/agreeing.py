"""Owns what ranks tell each other of one tuning: the name they know it by, and who knows what."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileops.autotuner import ranks
from tileops.autotuner.campaign import Findings, Outcome
from tileops.autotuner.database import Best, Row
from tileops.autotuner.measuring import Measured
from tileops.autotuner.ranks import Json, Part, Share, StoreLostError
from tileops.autotuner.spaces import Config, canonical

if TYPE_CHECKING:
    from tileops.autotuner.deciding import Question


def share_for(question: Question, space: str, check: str, digest: str) -> Share | None:
    """The share of this process in a tuning; None where it is no rank of several.

    Ranks meet where the program, its ``digest`` under one config, the ``space`` and the ``check``
    are the same: the others tune apart.
    """
    key = question.key
    facts = [key.op, key.script, key.hash, space, check, digest]
    return ranks.share_of(hashlib.sha256(json.dumps(facts).encode()).hexdigest())


def has_ranks() -> bool:
    """Whether this process is one of several ranks."""
    return ranks.world() > 1


def is_settled(share: Share | None) -> bool:
    """Whether the ranks have an answer that names a config."""
    answer = _answer(share)
    return answer is not None and bool(answer["ranking"])


def settled(share: Share | None, configs: Sequence[Config]) -> Findings | None:
    """What the ranks found of ``configs``, None where they have no answer yet."""
    answer = _answer(share)
    if answer is None or share is None:
        return None
    part = Part(share, [canonical(config) for config in configs])
    return Findings.of(part.numbered(answer), len(configs))


def _answer(share: Share | None) -> Json | None:
    try:
        return None if share is None else share.answer()
    except StoreLostError:
        return None


def tell(share: Share, best: Best, rows: Sequence[Row]) -> tuple[str, float | None]:
    """Give the others a recorded winner; the config that stands, by name, and its milliseconds.

    Of the rows only the winner's goes with it: the others may be of other programs.
    """
    name = canonical(best.config)
    row = next((r for r in reversed(rows) if canonical(r.config) == name), None)
    own = Measured("ok", best.latency)
    if row is not None and row.is_right and row.digest == best.digest:
        own = measured_of(row)
    outcome = Outcome(own, where="" if row is None else row.where)
    try:
        answer = share.publish({"outcomes": {name: outcome.to_json()}, "ranking": [name]})
    except StoreLostError:
        return name, best.latency
    if not answer["ranking"] or answer["ranking"][0] == name:
        return name, best.latency
    stands = answer["ranking"][0]
    return stands, answer["outcomes"][stands]["measured"]["latency_ms"]


def part_of(
    share: Share,
    configs: Mapping[int, Config],
    rows: Mapping[int, Row],
    *,
    budget: float | None,
    seed: int | None,
    clock: Callable[[], float] = time.monotonic,
) -> Part:
    """A rank's part in measuring ``configs``; ``rows`` are known already.

    All ranks take ``budget`` seconds at most from here on, as far as one config allows.
    """
    deadline = None if budget is None else clock() + budget
    known: dict[str, Any] = {
        canonical(row.config): Outcome(measured_of(row), where=row.where).to_json()
        for row in rows.values()
    }
    names = [canonical(config) for config in configs.values()]
    return Part(share, names, known, seed, lambda: deadline is not None and clock() >= deadline)


def measured_of(row: Row) -> Measured:
    """A recorded measurement as one that was just made."""
    return Measured(row.status, row.latency, row.low, row.high, row.samples, row.reason)
