"""The generator of docs/support.md: the executors on which the tests ran each construct.

``TILEOPS_TEST_RECORD=run.json python -m pytest tests/cpu`` records what passed, and
``python -m tests.docs.support --merge run.json`` adds that to tests/docs/recorded.json and writes
the page. ``--fresh`` first drops the marks of the executors that the files speak of.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tileops.language as T
from tests.docs.examples import ROOT
from tileops.language.missing import INSTEAD_OF, by_reason

PAGE = ROOT / "docs/support.md"
RECORDED = Path(__file__).parent / "recorded.json"
# Executor to the head of its column.
EXECUTORS = {
    "cpu": "CPU",
    "compile": "compiles for GPUs",
    "interpreter": "interpreter",
    "gpu": "GPU",
}
FORMS = (
    "`if` in a program",
    "conditional expression",
    "`while`",
    "`break`",
    "`continue`",
    "augmented assignment",
    "chained assignment",
    "tuple assignment",
    "`and`, `or`, `not`",
    "chained comparison",
    "`for` over `range`",
    "slice of a buffer",
    "`assert`",
    "`...` in a shape",
    "several launches",
)
# Heading of the page to the modules that define its constructs.
SECTIONS = {
    "Programs and launches": ("definitions", "parameter_types", "launch"),
    "Tiles and movement": ("allocation", "copies", "buffers", "views"),
    "Tile computation": ("products", "reductions", "atomics"),
    "Loops and conditions": ("loops", "persistent"),
    "Scalars": ("arithmetic", "mathematics", "value", "vectors", "conversions"),
    "Roles and barriers": ("roles", "barriers", "asynchronous"),
    "Single threads": (
        "clusters",
        "exchanges",
        "matrices",
        "random_numbers",
        "source_text",
        "thread_reductions",
    ),
    "Hints and threads": ("hints", "layouts"),
    "Kernels of others": ("extern", "foreign"),
}
# Names whose object does not say which module it is from, or that belong to another's section.
_HOMES = {
    **dict.fromkeys(
        ("Tensor", "SharedBuffer", "FragmentBuffer", "LocalBuffer", "Ref", "ptr", "make_tensor"),
        "parameter_types",
    ),
    **dict.fromkeys(("assume", "device_assert", "print"), "loops"),
    **dict.fromkeys(
        ("get_thread_binding", "get_thread_bindings", "thread_binding", "sync_threads"), "hints"
    ),
}
# (construct, executor) to why that executor has no test of it.
_NOT_RECORDED = {
    "cpu": "what it launches is code for GPUs",
    "interpreter": "what it launches is code for GPUs",
    "compile": "`tests/foreign` compiles such programs, under the facts of each call",
}
REASONS: dict[tuple[str, str], str] = {
    (name, where): why
    for name in ("Extern", "cpp", "tensor_map")
    for where, why in _NOT_RECORDED.items()
} | {
    (name, "interpreter"): "Triton has no form for statements of single threads"
    for name in (
        "activemask", "all_sync", "any_sync", "ballot", "ballot_sync", "match_all_sync",
        "match_any_sync", "ptx_ldmatrix", "ptx_mma", "rng_init", "rng_rand", "rng_rand_float", "shfl_down", "shfl_sync", "shfl_up", "shfl_xor", "sync_warp",
        "syncthreads_and", "syncthreads_count", "syncthreads_or", "tvm_warp_shuffle", "warp_reduce_bitand",
        "warp_reduce_bitor", "warp_reduce_max", "warp_reduce_min", "warp_reduce_sum",
    )
} | {
    ("sync_grid", "interpreter"): "Triton has no form for statements of single threads",
    ("sync_grid", "cpu"): "the blocks of a launch do not run at once there",
} | {("activemask", "cpu"): "the threads of a block do not run together there"} | {
    (name, where): "the source is CUDA C++"
    for name in ("call_extern", "import_source")
    for where in ("cpu", "interpreter")
} | {
    (name, "interpreter"): "Triton has no form for statements of single threads"
    for name in (
        "ClusterKernel", "block_rank_in_cluster", "cluster_arrive", "cluster_sync", "cluster_wait", "copy_cluster",
    )
} | {("address_of", "interpreter"): "Triton has no form for statements of single threads"}  # fmt: skip
Record = dict[str, list[str]]


def load() -> dict[str, Any]:
    """What is recorded: ``constructs`` with their executors, and ``by_source``, see ``page``."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


def merge(recorded: dict[str, Any], runs: Iterable[Record], *, fresh: bool) -> dict[str, Any]:
    """``recorded`` with the marks of more runs; names that are no construct any more are dropped."""
    marks = {name: set(executors) for name, executors in recorded["constructs"].items()}
    by_source = set(recorded["by_source"])
    runs = list(runs)
    spoken = {executor for run in runs for executors in run.values() for executor in executors}
    for executor in spoken if fresh else spoken & by_source:
        for executors in marks.values():
            executors.discard(executor)
    for run in runs:
        for name, executors in run.items():
            marks.setdefault(name, set()).update(executors)
    known = {*FORMS, *(name for names in spellings().values() for name in names)}
    constructs = {n: [e for e in EXECUTORS if e in marks[n]] for n in sorted(marks) if n in known}
    return {
        "by_source": sorted(by_source - spoken),
        "constructs": {name: executors for name, executors in constructs.items() if executors},
    }


def coverage(recorded: dict[str, Any]) -> dict[str, set[str]]:
    """Executor to the constructs and forms that it ran."""
    return {
        executor: {name for name, marks in recorded["constructs"].items() if executor in marks}
        for executor in EXECUTORS
    }


def _home(name: str) -> str:
    if name in _HOMES:
        return _HOMES[name]
    module: str = getattr(getattr(T, name), "__module__", "")
    return module.rpartition(".")[2]


def spellings() -> dict[str, list[str]]:
    """First name of each construct to all its names; dtypes and classes of values are left out."""
    by_object: dict[int, list[str]] = {}
    for name in T.__all__:
        value = getattr(T, name)
        if not isinstance(value, T.dtype) and name not in ("Var", "PrimExpr", "dtype"):
            by_object.setdefault(id(value), []).append(name)
    groups = [
        sorted(names, key=lambda n: (n.startswith("__"), n.lower() != n, n))
        for names in by_object.values()
    ]
    return {names[0]: names for names in sorted(groups)}


def missing(recorded: dict[str, Any], executor: str) -> list[str]:
    """The constructs and forms without a mark for an executor and without a reason."""
    found = coverage(recorded)[executor]
    groups = [*spellings().values(), *([form] for form in FORMS)]
    return [
        names[0] for names in groups
        if not found & set(names) and (names[0], executor) not in REASONS
    ]  # fmt: skip


def page(recorded: dict[str, Any]) -> str:
    """The whole page. The column of an executor in ``by_source`` is what its tests' sources use."""
    found = coverage(recorded)
    head = "| construct | " + " | ".join(EXECUTORS.values()) + " |"
    head += "\n|---|" + ":-:|" * len(EXECUTORS)
    groups = spellings()
    parts = [
        "# What the tests run where",
        "Made by `python -m tests.docs.support` from recorded runs of the tests. A mark means that a passed test traced a\n"
        "program with the construct and ran it there with a right result. **CPU**: generated C++. **compiles for GPUs**:\n"
        "Triton's text or CUDA C++, compiled for GPUs on any machine. **interpreter**: Triton's text under its interpreter.\n"
        "**GPU**: on a device. No mark means that no recorded test uses the construct there; it may work.",
    ]
    for executor in recorded["by_source"]:
        parts.append(
            f"The column {EXECUTORS[executor]} is not from a recorded run yet: it says what the "
            "sources of its tests use."
        )
    for heading, modules in SECTIONS.items():
        rows = [_row(names, found) for first, names in groups.items() if _home(first) in modules]
        parts.append(f"## {heading}\n\n{head}\n" + "\n".join(rows))
    forms = [_row([form], found) for form in FORMS]
    parts.append(f"## Python's forms\n\n{head}\n" + "\n".join(forms))
    if REASONS:
        reasons = [
            f"- `{name}`, {EXECUTORS[executor]}: {reason}"
            for (name, executor), reason in REASONS.items()
        ]
        parts.append("## What has no test, and why\n\n" + "\n".join(reasons))
    parts.append(refused())
    return "\n\n".join(parts) + "\n"


def refused() -> str:
    """The section on TileLang's names that raise an error: how many, why, and what to write."""
    groups = by_reason()
    count = sum(map(len, groups.values()))
    rows = [
        f"| {reason} | {len(names)}: {', '.join(f'`{n}`' for n in sorted(names))} | {INSTEAD_OF[reason]} |"
        for reason, names in sorted(groups.items())
    ]
    return (
        f"## What is refused\n\nThe language has {len(T.__all__)} names. {count} more of TileLang are refused, each with a "
        "located error. `python -m tileops\ncheck --constructs FILE` says for a file which path takes each "
        "construct.\n\n| what | names | write instead |\n|---|---|---|\n" + "\n".join(rows)
    )


def _row(names: list[str], found: dict[str, set[str]]) -> str:
    shown = ", ".join(n if n in FORMS else f"`{n}`" for n in names)
    marks = ("✓" if set(names) & used else "" for used in found.values())
    return f"| {shown} | " + " | ".join(marks) + " |"


def main() -> None:
    """Merge runs if there are any, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--merge", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--fresh", action="store_true", help="drop older marks of these executors")
    args = parser.parse_args()
    recorded = load()
    if args.merge:
        runs = [json.loads(path.read_text()) for path in args.merge]
        recorded = merge(recorded, runs, fresh=args.fresh)
        RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")
    PAGE.write_text(page(recorded))


if __name__ == "__main__":
    main()
