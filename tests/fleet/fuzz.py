"""Mutated blobs to the reader of envelopes: none is accepted.

python -m tests.fleet.fuzz [--count 100000 | --seconds 60] [--seed 7]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from tests.fleet import blobs
from tileops.cache import envelope, keys
from tileops.cache.entry import DamagedError


def fuzz(count: int | None, seconds: float, seed: int) -> Counter[str]:
    """How many blobs were refused, by the error's class; ``accepted`` and ``same`` by themselves."""
    pick = random.Random(seed)
    ed25519 = keys.parse({"keys": [keys.generate("team", keys.ED25519)[0]]})
    pairs = [
        (ring, [blobs.blob(number, ring, size) for number in (0, 1) for size in (40, 700)])
        for ring in (blobs.hmac_ring(), ed25519)
    ]
    expected = [blobs.entry(number).hash for number in (0, 0, 1, 1)]
    end, found = time.monotonic() + seconds, Counter[str]()
    while found.total() - found["same"] < count if count is not None else time.monotonic() < end:
        ring, wholes = pick.choice(pairs)
        number = pick.randrange(len(wholes))
        data = blobs.mutated(wholes[number], pick.choice(wholes), pick)
        if data in wholes and wholes.index(data) // 2 == number // 2:
            found["same"] += 1  # a splice can give a whole one back
            continue
        try:
            envelope.unpack(data, expected[number], ring)
            found["accepted"] += 1
            print(f"accepted: seed {seed}, blob {found.total()}")
        except (DamagedError, envelope.UntrustedEnvelopeError) as error:
            found[type(error).__name__] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    found = fuzz(options.count, options.seconds, options.seed)
    print(f"envelopes, seed {options.seed}: {dict(found)}")
    return 1 if found["accepted"] else 0


if __name__ == "__main__":
    sys.exit(main())
