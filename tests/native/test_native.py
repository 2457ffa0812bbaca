"""The C++ core under ASan and UBSan: its unit tests, and some seconds of the fuzzer."""

from __future__ import annotations

import time

from tests.native import build


def test_unit_tests_are_clean() -> None:
    build.build("unit")
    done = build.run("unit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("tests passed")
    assert done.stderr == ""


def test_the_fuzzer_finds_nothing() -> None:
    build.build("fuzz")
    seed = int(time.time())  # another one in each run; `make fuzz FUZZ_SEED=...` repeats it
    done = build.run("fuzz", 3, seed)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"


def test_the_fuzzer_says_how_it_is_called() -> None:
    build.build("fuzz")
    refused = build.run("fuzz", "3")
    assert refused.returncode == 2
    assert "usage" in refused.stderr
