"""A process that calls a tuned program once: ``python -m tests.autotuner.started HOW``.

HOW is ``timer``, ``measured``, ``given`` (the config is given, nothing is tuned), or ``four`` or
``five``, the number of configs under a fake timer. It prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import torch

import tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
from tileops.autotuner import decorator as _decorator  # noqa: F401  (as any use of autotune has it)


class SlowTimer(FakeTimer):
    """Long enough for another process to come."""

    __qualname__ = "SlowTimer"

    def __call__(self, config, kernel, inputs):  # type: ignore[no-untyped-def]
        time.sleep(0.2)
        return super().__call__(config, kernel, inputs)


def main(how: str) -> None:
    timer = SlowTimer({8: 3.0, 16: 2.0, 32: 1.0, 64: 4.0, 128: 0.5})
    blocks = {"four": (8, 16, 32, 64), "five": (8, 16, 32, 64, 128)}.get(how, (8, 32))
    options = {"warmup": 1, "rep": 2} if how in ("measured", "given") else {"timer": timer}
    program = tileops.autotune(configs=[{"block": b} for b in blocks], **options)(fresh_const())
    a = torch.arange(100.0)
    keywords = {"block": 32} if how == "given" else {}
    start = time.perf_counter()
    b = program(a, **keywords)
    first = time.perf_counter() - start
    start = time.perf_counter()
    program(a, **keywords)
    again = time.perf_counter() - start
    modules = sorted(m for m in sys.modules if m.split(".")[0] in ("triton", "tileops"))
    report = {"right": torch.equal(b, a * 2), "calls": timer.calls, "modules": modules}
    report["first_ms"] = (first - again) * 1e3
    print(json.dumps({**report, "compiles": tileops.stats()["compiles"]}))


if __name__ == "__main__":
    main(sys.argv[1])
