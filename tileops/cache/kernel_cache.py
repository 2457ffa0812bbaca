"""The names of another system for using the cache: KernelCache, and switching the cache off.

A thin facade over ``tileops.compile``, which always goes through the cache; nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tileops import option, settings
from tileops.cache import aliases, scripts
from tileops.cache.cubin_cache import is_of_cubin_cache
from tileops.cache.directory import here
from tileops.cache.store import store
from tileops.errors import ArgumentError, CacheError

if TYPE_CHECKING:
    from tileops.jit.kernel import JITKernel

# The names of the files in an entry, as they are here: C++ for the CPU and not CUDA, JSON and not a
# pickle.
DEVICE_KERNEL_PATH = "device_kernel.cpp"
KERNEL_LIB_PATH = "kernel_lib.so"
KERNEL_CUBIN_PATH = "kernel.cubin"
KERNEL_PY_PATH = "kernel.py"
PARAMS_PATH = "params.json"
# Names of files that no entry has, and why.
_ABSENT = {
    "HOST_KERNEL_PATH": "an entry has no host code: one C++ call path launches every kernel",
    "EXECUTABLE_PATH": (
        "an entry has no executable.so: KERNEL_CUBIN_PATH is what a GPU runs, KERNEL_LIB_PATH what "
        "the CPU runs"
    ),
}


class KernelCache:
    """Compiles through the cache of the process; every instance is the same cache.

    ``execution_backend`` is a name that programs read: every kernel is launched in one way.
    """

    execution_backend: str = "auto"

    def cached(
        self,
        func: Callable[..., Any] | object = None,
        out_idx: int | list[int] | None = None,
        *args: object,
        target: str | None = "auto",
        verbose: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> JITKernel:
        """The kernel of ``func``, compiled now or found in the cache.

        ``func`` is a ``T.prim_func``, or a function that returns one when called with ``args``;
        ``options`` are those of ``tileops.compile``. ArgumentError if ``func`` is missing; what
        compiling raises.
        """
        from tileops.jit import compile as compile_program

        if func is None:
            raise ArgumentError("KernelCache.cached: expected a T.prim_func, got None")
        if args and callable(func):
            func = func(*args)
        return compile_program(func, out_idx, target=target, verbose=verbose, **options)

    def clear_cache(self) -> None:
        """``clear_cache()``."""
        clear_cache()


def cached(*args: Any, **kwargs: Any) -> JITKernel:  # noqa: ANN401
    """``KernelCache().cached(...)``."""
    return KernelCache().cached(*args, **kwargs)


def disable_cache() -> None:
    """Keep what is compiled from now on in memory only; see ``tileops.option.cache_disable``."""
    option.cache_disable(True)


def enable_cache() -> None:
    """Use the cache directory again."""
    option.cache_disable(False)


def is_cache_enabled() -> bool:
    """True if compiled programs are kept in a directory."""
    return not settings.current().cache_disable


def clear_cache() -> None:
    """Forget all programs, in memory and in the private directory; loaded kernels stay.

    What code put there by itself, through a CubinCache, stays too.
    """
    store().remove_all(lambda key: key is None or not is_of_cubin_cache(key))
    directory = here().private
    if directory is not None:
        aliases.sweep(directory)
        scripts.clear(directory)


def __getattr__(name: str) -> object:
    # No AttributeError: an import of the name would drop the reason.
    if name in _ABSENT:
        raise CacheError(f"{__name__}.{name}: {_ABSENT[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
