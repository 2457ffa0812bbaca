"""The types of the native module ``tileops._C``, the control plane of libtileops.

``tileops.runtime`` loads it at the first use and has all of its names. Errors are the classes of
``tileops.errors``; InternalError means a malformed description.
"""

import os
from collections.abc import Callable, Iterable, Sequence, Set
from types import ModuleType
from typing import Any, Literal

# -- ops -------------------------------------------------------------------------------------------

def create_op(op: dict[str, Any] | str) -> int:
    """Register an op with torch as its op.json says; return its handle, valid until exit.

    Raises ArgumentError where torch refuses the schema or the name.
    """

def add_variant(handle: int, variant: dict[str, Any] | str) -> int:
    """Add the checks and bindings of one combination of static arguments; return its number.

    ``static`` holds the values in order, then for each optional tensor whether it is given. If an
    equal combination exists already, its number is returned.
    """

def add_entry(
    handle: int,
    variant: int,
    entry: dict[str, Any] | str,
    images: dict[str, bytes | str | os.PathLike[str] | tuple[bytes, str]],
) -> None:
    """Add a compiled specialisation of a variant, unless an equal one exists.

    ``images`` maps file names to what they hold: the content, a path, or the content and the path
    of a copy. With the content given, no later change of a file can reach the code that runs.
    Nothing is loaded before the first call that needs it.
    """

def load_entry(
    handle: int,
    variant: int,
    *,
    cuda: bool,
    device_index: int,
    consts: Sequence[int],
    fast: bool,
    index64: bool,
) -> None:
    """Load the code of an entry on a device, so that its first call loads nothing.

    InternalError if no such entry was added, DriverError if the driver refuses it.
    """

def set_resolver(handle: int, resolver: Callable[[int, dict[str, Any]], None] | None) -> None:
    """Set what a call runs when it finds no variant or entry: once a key, however many wait.

    ``resolver(handle, request)`` adds what is missing, or raises. A request is ``{"kind":
    "variant", "static": [...]}`` (static arguments in order, then for each optional tensor whether
    it was given) or ``{"kind": "entry", "variant", "device_type", "device_index", "capability",
    "consts", "fast", "index64", "sizes", "scalars", "entries"}``; ``entries`` is how many
    specialisations the variant has already.
    """

def keep_given(handle: int) -> None:
    """Let a static argument that is given its default's value select a variant of its own."""

def retire_op(handle: int, message: str) -> None:
    """Make every later call of the op raise RedefinedOpError with ``message``."""

def unload(handle: int) -> None:
    """Drop the op's variants, entries and loaded code, waiting for the calls that run them.

    The op stays: its next call asks the resolver again.
    """

def detach(handle: int) -> None:
    """The first half of ``unload``: later calls find nothing; running calls finish.

    Variant numbers that running calls still ask for stay valid.
    """

def release(handle: int) -> None:
    """The second half: waits for running calls and frees what they used.

    Do not call it under a lock that a resolver takes: running calls may be waiting for that lock.
    """

def set_origin(handle: int, text: str) -> None:
    """Tell where the op's program is, as ``file:line``, for errors of the device."""

# -- bundles ---------------------------------------------------------------------------------------

class BundledOp:
    """One op of a bundle: its qualified name here, its ``op.json``, and the bundle's folder."""

    @property
    def handle(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def path(self) -> str: ...

def load_bundles(
    paths: Iterable[str],
    *,
    shared: bool = False,
    namespace: str = "",
    left: Set[str] = ...,
) -> list[BundledOp]:
    """Register the ops of bundles, all or none; ``left`` names those that are not registered.

    ``namespace`` takes the place of the ops' own; ``shared`` allows files that others may have
    written. ArgumentError naming the file for a bundle that is missing, damaged or not trusted, and
    for a name that another op has.
    """

def read_bundles(
    paths: Iterable[str], *, shared: bool = False, namespace: str = ""
) -> list[BundledOp]:
    """The ops that ``load_bundles`` would register; the same errors, except those about names."""

def adopt_op(handle: int) -> None:
    """Give the op of a bundle to the program behind its resolver, which must be set before.

    Its calls ask the resolver for variants and kernels from now on; those inside finish with what
    they found. To later bundles the name is that of a program.
    """

# -- calls -----------------------------------------------------------------------------------------

def direct_call(
    cls: type,
    op: object,
    count: int,
    tensors: Sequence[int],
    scalars: Sequence[tuple[int, type]],
    *,
    asks_gradient: bool,
) -> object:
    """What an object of ``cls`` keeps as ``_direct`` so that its plain calls run no Python code.

    A call with ``count`` positional arguments, plain tensors at the positions ``tensors`` and
    values of exactly the types ``scalars``, goes to ``op`` at once; with ``asks_gradient`` not if a
    tensor requires grad in grad mode. ``cls`` has a ``__call__`` in Python, which takes all other
    calls, ``_direct`` among its ``__slots__``, and ``_explain(args, error)``, which may raise
    better words for an error of the op.
    """

def make_op_call(
    function: object,
    general: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    explain: Callable[[tuple[Any, ...], dict[str, Any], Exception], None],
    *,
    asks_gradient: bool,
) -> Callable[..., Any]:
    """A callable that replaces torch's own ``function`` in torch's Python class of an op.

    It goes to ``function`` at once with plain tensors and numbers. ``general(args, kwargs)`` takes
    the call if an argument is anything else and, with ``asks_gradient``, if a tensor requires grad
    in grad mode. ``explain(args, kwargs, error)`` may raise better words for a RuntimeError of
    either.
    """

def set_has_gradient(call: Callable[..., Any]) -> None:
    """Say that autograd has a rule in Python for the op: plain calls pass it by."""

def set_gradient_source(
    forward_mode: ModuleType,
    is_grad_enabled: Callable[[], bool],
    tensor: type,
    parameter: type,
    requires_grad: object,
) -> None:
    """Tell where torch keeps what calls ask about gradients; later calls change nothing."""

def find_tensor_state(samples: Sequence[object]) -> bool:
    """Look for a way to read whether a plain tensor requires grad without Python's attribute.

    It must be right for each of ``samples``, tensors of which some require grad. False if this
    torch has no such way.
    """

def find_dispatch_state(keys: int, front: int) -> bool:
    """Look for the functions of torch's dispatcher by which calls pass autograd by.

    ``keys`` are the bits of autograd's dispatch keys, ``front`` is the number of the key by which
    the transforms of torch.func see calls first. False if this torch lacks the functions.
    """

def forget_dispatch_state() -> None:
    """Undo ``find_dispatch_state``: no call passes autograd by."""

def below_autograd(function: Callable[[], object]) -> object:
    """The result of ``function()`` run as a call that passes autograd by."""

# -- devices ---------------------------------------------------------------------------------------

def device_count() -> int:
    """The number of CUDA devices that the driver shows; 0 without a driver."""

def refusal_of_ptx(text: str, device_index: int) -> str:
    """Why the driver of a device does not take PTX like this; empty if it does.

    Names the text's ``.version`` and the CUDA version of the driver. Only the head of the text is
    given to the driver. ArgumentError for what is not PTX.
    """

def device_properties(device_index: int) -> dict[str, Any]:
    """Name, compute capability (90 for 9.0) and the facts that host programs can use, by name.

    Raises DriverError for a device that does not exist and ToolchainError without a driver.
    """

def is_capturing(device_index: int) -> bool:
    """Whether torch's current stream on the device records a CUDA graph."""

def set_driver_library(path: str) -> None:
    """Take the CUDA driver from the library ``path`` from now on, for tests."""

# -- the process -----------------------------------------------------------------------------------

def set_error_classes(classes: Sequence[type[Exception]]) -> None:
    """Set the classes of errors, in the order of ``ErrorKind``."""

def set_strict(strict: bool) -> None:
    """Make a missing kernel raise CompileMissError instead of asking the resolver."""

def is_strict() -> bool:
    """Whether a missing kernel is an error."""

def set_sync(sync: bool) -> None:
    """Make each CUDA call wait for its kernels, so that a fault is the error of its op."""

def recent_launches(device_index: int) -> list[str]:
    """The latest launches of this process on a CUDA device, newest first: op and sizes.

    Some may still be running: one of them may have caused a CUDA error that torch reports.
    """

def counters() -> dict[str, int]:
    """Events of this process: ``launches loads memory_hits resolves jits``; ``load_ns`` is a time.

    ``jits`` are loads of PTX, which the driver compiles: their time is ``jit_ns``.
    """

def set_stage_clock(is_on: bool) -> None:
    """Start or stop the clock of the stages of calls, in all threads, and forget what it counted.

    It costs a call some 0.2 us; without it a call reads no clock.
    """

def stage_totals() -> dict[Literal["read", "look up", "allocate", "launch", "kernel", "free"], int]:
    """Nanoseconds by stage since the clock was started.

    ``read`` the arguments, ``look up`` the kernel and check, ``allocate`` outputs, ``launch`` with
    its part ``kernel`` (the driver's call; on a CPU the kernel itself), ``free`` the arguments.
    """

def run_raw(
    handle: int,
    variant: int,
    *,
    cuda: bool = True,
    device_index: int = 0,
    fast: bool = True,
    index64: bool = False,
    sizes: Sequence[int] = (),
    int_scalars: Sequence[int] = (),
    float_scalars: Sequence[float] = (),
    tensors: Sequence[int] = (),
    workspace: int = 0,
    stream: int = 0,
) -> None:
    """Run an entry on raw addresses: the launch path without tensors, for tests."""
