"""Which path takes a construct: what turns it into code, for which targets."""

from __future__ import annotations

from tileops.language import (
    asynchronous,
    barriers,
    clusters,
    exchanges,
    extern,
    foreign,
    hints,
    matrices,
    random_numbers,
    roles,
    source_text,
    thread_reductions,
)

_EVERYWHERE = "Triton for GPUs, C++ for CPUs"
_SCHEDULED = f"{_EVERYWHERE}; on sm_90 Gluon in roles where a schedule fits the launch"
_ROLES = "Gluon in roles for sm_90, C++ in one order for CPUs"
_FOREIGN = "the kernel's own compiler, for GPUs"
_HINT = "a hint, accepted everywhere; results do not depend on it"
_SINGLE = "statements of single threads: CUDA C++ for NVIDIA's GPUs, fibers on CPUs"
_CLUSTERS = "clusters of blocks: CUDA C++ for sm_90 and later, fibers on CPUs"
_SOURCES = "CUDA C++ for NVIDIA's GPUs"
_THREADS = (
    f"loops over the threads of a block: {_EVERYWHERE}; on sm_90 roles where it chooses them; as "
    f"{_SINGLE}"
)

# What a schedule for Hopper is made of.
_OF_A_SCHEDULE = ("gemm", "Pipelined", "copy", "Persistent", "PersistentTileScheduler")
_THREAD_NAMES = ("get_thread_binding", "get_thread_bindings", "thread_binding", "sync_threads")
# Of the module of hints, what is not one.
_NO_HINTS = ("annotate_safe_value", "device_assert", "print_values")


def paths_of(name: str) -> str:
    """The paths that take the construct ``T.<name>``, in words."""
    if name in (*roles.__all__, *barriers.__all__, *asynchronous.__all__, "WarpSpecialize"):
        return _ROLES
    if name in (*extern.__all__, *foreign.__all__):
        return _FOREIGN
    if name in clusters.__all__:
        return _CLUSTERS
    if name in source_text.__all__:
        return _SOURCES
    if name in (*exchanges.__all__, *matrices.__all__, *random_numbers.__all__):
        return _THREADS if name.startswith("get_") else _SINGLE
    if name in (*_THREAD_NAMES, *thread_reductions.__all__):
        return _THREADS
    if name in ("annotate_layout", "Layout", "Fragment", "GemmWarpPolicy"):
        return _HINT
    if name in hints.__all__ and name not in _NO_HINTS:
        return _HINT
    return _SCHEDULED if name in _OF_A_SCHEDULE else _EVERYWHERE
