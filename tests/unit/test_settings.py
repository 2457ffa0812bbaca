"""Settings, options, counters and the log: read at call time, set in code, counted, said once."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import warnings
from pathlib import Path

import pytest

from tileops import counters, log, option, settings
from tileops.errors import ArgumentError


@pytest.fixture(autouse=True)
def _clean() -> None:
    option.reset()
    log._warned.clear()
    counters.stats(reset=True)


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEOPS_STRICT", raising=False)
    assert settings.current().strict is False
    monkeypatch.setenv("TILEOPS_STRICT", "1")
    assert settings.current().strict is True


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("TILEOPS_CACHE_LIMIT", "10GiB", "cache_limit", 10 << 30),
        ("TILEOPS_CACHE_LIMIT", "1.5 kb", "cache_limit", 1500),
        ("TILEOPS_CACHE_LIMIT", "4096", "cache_limit", 4096),
        ("TILEOPS_CACHE_LIMIT", "none", "cache_limit", None),
        ("TILEOPS_CACHE_PATH", "/a::/b", "cache_path", ("/a", "/b")),
        ("TILEOPS_CACHE_KEEP", "ptx, ttgir", "cache_keep", ("ptx", "ttgir")),
        ("TILEOPS_CACHE_DISABLE", "yes", "cache_disable", True),
        ("TILEOPS_CACHE_DISABLE", "", "cache_disable", False),
        ("TILEOPS_CACHE_DIR", "", "cache_dir", None),
        ("TILEOPS_VERBOSE", "", "verbose", None),
        ("TILEOPS_VERBOSE", "off", "verbose", False),
        ("TILEOPS_COMPILE_WORKERS", "3", "compile_workers", 3),
        ("TILEOPS_CACHE_LOCK_SECONDS", "0.5", "cache_lock_seconds", 0.5),
    ],
)
def test_texts(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, field: str, value: object
) -> None:
    monkeypatch.setenv(name, text)
    assert getattr(settings.current(), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TILEOPS_CACHE_LIMIT", "lots"),
        ("TILEOPS_CACHE_LIMIT", "-1"),
        ("TILEOPS_STRICT", "maybe"),
        ("TILEOPS_COMPILE_WORKERS", "0"),
        ("TILEOPS_CACHE_LOCK_SECONDS", "nan"),
        ("TILEOPS_CACHE_LOCK_SECONDS", "inf"),
    ],
)
def test_a_text_that_cannot_be_read_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ArgumentError, match=f"{name}='{text}': expected"):
        settings.current()


def test_options_lie_over_the_environment_and_end_with_their_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEOPS_CACHE_LIMIT", "5GiB")
    with option.cache_limit("1GiB"):
        assert settings.current().cache_limit == 1 << 30
        with option.cache_limit(None):
            assert settings.current().cache_limit is None
        assert settings.current().cache_limit == 1 << 30
    assert settings.current().cache_limit == 5 << 30


def test_every_option_sets_its_field(tmp_path: Path) -> None:
    option.cache_dir(tmp_path)
    option.cache_path(tmp_path, "~/shared")
    option.cache_disable()
    option.cache_keep("ptx")
    option.strict()
    option.verbose()
    option.log("compile")
    option.target("cpu")
    option.compile_workers(2)
    option.debug.dump_ir()
    now = settings.current()
    assert now.cache_dir == str(tmp_path)
    assert now.cache_path == (str(tmp_path), "~/shared")
    assert now.cache_keep == ("ptx",)
    assert now.log == ("compile",)
    assert now.target == "cpu"
    assert now.compile_workers == 2
    assert (now.cache_disable, now.strict, now.verbose) == (True, True, True)
    option.reset()
    assert settings.current().strict is False


def test_a_relative_directory_does_not_move_with_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    option.cache_dir("here")
    monkeypatch.chdir("/")
    assert settings.current().cache_dir == str(tmp_path / "here")


@pytest.mark.parametrize("bad", [-1, "much", "-5GiB"])
def test_a_bad_limit_is_refused(bad: int | str) -> None:
    with pytest.raises(ArgumentError, match="cache_limit"):
        option.cache_limit(bad)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ArgumentError, match="compile_workers"):
        option.compile_workers(0)
    with pytest.raises(ArgumentError, match="no setting 'cashe'"):
        settings.override("cashe", 1)


def test_a_child_gets_the_environment_without_what_changes_its_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    monkeypatch.setenv("KEEP_ME", "1")
    child = settings.child_environment({"MORE": "2"}, drop=("TRITON_", "PTXAS_"))
    assert "TRITON_F32_DEFAULT" not in child
    assert child["KEEP_ME"] == "1"
    assert child["MORE"] == "2"


def test_counters_are_exact_under_threads() -> None:
    def work() -> None:
        for _ in range(1000):
            counters.add("launches")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.stats()["launches"] == 8000


def test_stats_have_all_fields_and_reset() -> None:
    counters.add("compiles", 2)
    with counters.timed("trace"):
        pass
    first = counters.stats(reset=True)
    assert set(first) == {*counters.NAMES, "ms"}
    assert first["compiles"] == 2
    assert "trace" in first["ms"]  # type: ignore[operator]
    assert counters.stats()["compiles"] == 0
    assert counters.stats()["ms"] == {}
    with pytest.raises(KeyError):
        counters.add("compile")


def test_counters_of_the_runtime_are_added_and_reset() -> None:
    outside = {"launches": 5, "loads": 1}
    before = counters._provider
    counters.set_provider(lambda: outside)
    try:
        assert counters.stats()["launches"] == 5
        counters.stats(reset=True)
        outside["launches"] = 7
        assert counters.stats()["launches"] == 2
        assert counters.stats()["loads"] == 0
    finally:
        counters.set_provider(before)


def test_a_compile_is_counted_logged_and_told() -> None:
    event = counters.CompileEvent("f", "cpu:x86-64-v3", "first call", 0.25, "ab" * 32, {"M": 3})
    seen: list[counters.CompileEvent] = []
    remove = counters.on_compile(seen.append)
    counters.record_compile(event)
    remove()
    remove()
    counters.record_compile(event)
    assert seen == [event]
    assert counters.stats()["compiles"] == 2
    assert event.line() == "compiled f M=3 for cpu:x86-64-v3 in 0.25 s (first call) abababababab"


def test_log_lines_go_to_the_logger_or_to_stderr(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tileops"):
        log.emit("compile", "one")
    assert caplog.messages == ["one"]
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        log.emit("compile", "two")
        with option.log("compile"):
            log.emit("compile", "three")
            log.emit("cache", "four")
        with option.log("all"):
            log.emit("cache", "five")
    finally:
        root.handlers = handlers
    assert capsys.readouterr().err == "tileops: three\ntileops: five\n"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_line_without_a_stderr_is_dropped(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(sys, "stderr", closed if is_there else None)
    with option.log("compile"):
        log.emit("compile", "nowhere")


def test_a_warning_is_given_once_for_its_key() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            log.warn_once("a", "first")
            log.warn_once("b", "second")
    assert [str(w.message) for w in caught] == ["first", "second"]
    assert all(issubclass(w.category, log.TileopsWarning) for w in caught)


def test_children_of_this_package_find_what_their_parent_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They start in another folder, so relative entries of PYTHONPATH become absolute."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["relative", "", "/absolute", "relative"]))
    found = settings.module_environment({"EXTRA": "1"})
    assert found["EXTRA"] == "1"
    assert found["PYTHONPATH"].split(os.pathsep) == [
        settings.PACKAGE_ROOT, str(tmp_path / "relative"), "/absolute",
    ]  # fmt: skip
    assert (Path(settings.PACKAGE_ROOT) / "tileops" / "settings.py").is_file()
