"""What every test gets: a cache of its own, and the time budget of its suite."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent
_BUDGETS = json.loads((_ROOT / "budgets.json").read_text())
_spent: dict[str, float] = defaultdict(float)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's cache; child processes inherit the variable."""
    before = {k: v for k, v in os.environ.items() if k.startswith("TILEOPS_")}
    for name in before:
        if name.startswith("TILEOPS_CACHE") or name in ("TILEOPS_STRICT", "TILEOPS_BUNDLE"):
            del os.environ[name]
    os.environ["TILEOPS_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["TILEOPS_VERIFY_IR"] = "1"  # after each pass, in every test
    yield
    del os.environ["TILEOPS_CACHE_DIR"], os.environ["TILEOPS_VERIFY_IR"]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _numbers_of_the_test(request: pytest.FixtureRequest) -> None:
    """A test draws the same numbers in each run and whatever ran before it; nightly runs draw others."""
    seed = zlib.crc32(request.node.nodeid.encode()) ^ int(os.environ.get("TILEOPS_TEST_SEED", "0"))
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


def pytest_configure(config: pytest.Config) -> None:
    if path := os.environ.get("TILEOPS_TEST_RECORD"):
        from tests.docs.recording import Recorder

        config.pluginmanager.register(Recorder(Path(path).absolute()))


@pytest.fixture
def tuning_cache(tmp_path: Path) -> Iterator[Path]:
    """A cache of the test's own, for tests that tune; tuned programs may take each other's names."""
    import tileops
    from tileops import log

    log._warned.clear()
    with tileops.option.cache_dir(tmp_path / "cache"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*tuned_.*")
        yield tmp_path / "cache"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts this process and its children; workers of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def has_gpu() -> bool:
    """True if this machine has a CUDA device that torch can use."""
    import torch

    return torch.cuda.is_available()


def gpu_count() -> int:
    """The CUDA devices of this machine that torch can use."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for_two = [item for item in items if item.get_closest_marker("two_gpus")]
    if for_two and gpu_count() < 2:
        # Not a skip: a machine with one GPU lacks nothing that it could have.
        config.hook.pytest_deselected(items=for_two)
        items[:] = [item for item in items if item not in for_two]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))


# What a skip says where torch itself cannot do what a test needs: no lack of this project's.
TORCHS_OWN_FAULT = "packages without tileops crash here too"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """On a machine with a GPU a GPU test may not skip: its want is then a fault, not a lack."""
    outcome = yield
    report = outcome.get_result()
    excused = TORCHS_OWN_FAULT in str(report.longrepr)
    if report.skipped and not excused and item.get_closest_marker("gpu") and has_gpu():
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} skipped on a machine with a GPU: {report.longrepr}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Reports reach the process that prints the summary also where workers run the tests.
    _spent[_suite(report.nodeid)] += report.duration


def _suite(nodeid: str) -> str:
    parts = nodeid.split("/")
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else "other"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    over = {
        suite: seconds
        for suite, seconds in _spent.items()
        if seconds > _BUDGETS["seconds"].get(suite, _BUDGETS["default_seconds"])
    }
    for suite, seconds in sorted(_spent.items(), key=lambda pair: -pair[1]):
        budget = _BUDGETS["seconds"].get(suite, _BUDGETS["default_seconds"])
        mark = "  OVER BUDGET" if suite in over else ""
        terminalreporter.write_line(f"suite {suite}: {seconds:.1f} s of {budget} s{mark}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    # The budgets are for a machine that does nothing else; a busy one is up to three times as slow.
    if exitstatus == 0 and os.environ.get("TILEOPS_TEST_BUDGETS") == "1":
        for suite, seconds in _spent.items():
            if seconds > 3 * _BUDGETS["seconds"].get(suite, _BUDGETS["default_seconds"]):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
