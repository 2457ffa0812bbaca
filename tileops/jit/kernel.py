"""JITKernel: a compiled program that can be called, inspected, measured and copied."""

from __future__ import annotations

import importlib.util
import inspect
import json
import operator
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tileops import forks, settings
from tileops.cache import staging
from tileops.errors import ArgumentError, ArgumentTypeError, ToolchainError
from tileops.ir import fold
from tileops.ir.expr import Const
from tileops.ir.printer import print_expr
from tileops.ir.program import Program, TensorParam
from tileops.jit.provider import NAMESPACE, Build, KernelState, Transformable, state_for, state_of
from tileops.jit.statics import constant
from tileops.op import call_inputs, gradient
from tileops.op.registration import refuse_capture
from tileops.op.variant import pack_of
from tileops.optional_torch import forward_ad, torch

if TYPE_CHECKING:
    from tileops.codegen.kernel_code import KernelCode
    from tileops.profiler import Profiler, TensorSupplyType

_SOURCES = {"triton": "kernel.py", "cpp": "device_kernel.cpp"}


@dataclass(frozen=True)
class KernelParam:
    """A kernel's parameter: torch dtype and shape; an extent is text if it is a run-time size.

    A first extent of ``"..."`` stands for any number of leading dimensions.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int | str, ...]
    is_scalar: bool = False
    is_output: bool = False


def _of_state(name: str, doc: str) -> Any:  # noqa: ANN401
    return property(lambda kernel: getattr(state_of(kernel._name), name), doc=doc)


class JITKernel(Transformable):
    """A program compiled for one target.

    A call takes the program's tensors and scalars without those that ``out_idx`` or ``T.empty``
    allocates, and returns these: one tensor, or a list of several. The object copies as itself, and
    pickles as program, options and target.
    """

    # Dynamo traces __init__ and __call__, so they are plain Python without locks or look-ups;
    # functions marked as constant run once, at trace time.
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run the kernel."""
        if forward_ad._current_level >= 0:
            given = (*args, *kwargs.values())
            gradient.refuse_tangents(f"kernel {self._name}", given)
        for n, name, kind, dtype in self._scalars:
            if name in kwargs:
                kwargs[name] = self._converted(name, dtype, kwargs[name])
            elif n < len(args) and type(args[n]) is not kind:
                args = (*args[:n], self._converted(name, dtype, args[n]), *args[n + 1 :])
        try:
            result = self._op(*args, **kwargs)
        except RuntimeError as error:
            self._explain(args, kwargs, error)
            raise
        return list(result) if isinstance(result, tuple) else result

    def _converted(self, name: str, dtype: str, value: Any) -> Any:  # noqa: ANN401
        return call_inputs.scalar(f"kernel {self._name}: argument '{name}'", dtype, value)

    def _explain(self, args: tuple[Any, ...], kwargs: dict[str, Any], error: RuntimeError) -> None:
        """Raise what is wrong with inputs that torch refused, if that is why a call failed."""
        if not torch.compiler.is_compiling():
            state = state_of(self._name)
            spec = state.registered().spec
            names = [a.name for a in spec.inputs()]
            made = [p.name for p in state.program.tensors() if p.allocated]
            call_inputs.check_names(f"kernel {self._name}", spec.args, len(args), kwargs, made)
            scalars = {name: dtype for _, name, _, dtype in self._scalars}
            given = dict(zip(names, args, strict=False))
            given.update((name, kwargs[name]) for name in names if name in kwargs)
            call_inputs.explain(f"kernel {self._name}", given, (), scalars, error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "__signature__":
            return _signature(state_of(self._name).program)
        if name not in ("_op", "_scalars"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        op_name, scalars = _registered_names(self._name).split("::")
        op = getattr(getattr(torch.ops, NAMESPACE), op_name).default
        kinds = tuple(_scalar(text) for text in scalars.split(",") if text)
        if not torch.compiler.is_compiling():
            self._op, self._scalars = op, kinds
        return op if name == "_op" else kinds

    @property
    def op(self) -> torch._ops.OpOverload:
        """The torch op of the kernel, registered when first asked for."""
        return self._op  # type: ignore[no-any-return]

    def _transformed(self, method: str) -> KernelState:
        state = state_of(self._name)
        state.registered()
        return state

    # -- what it is ------------------------------------------------------------------------------
    prim_func = _of_state("program", "The traced program.")
    target = _of_state("target", "The target that the kernel was compiled for.")
    artifact = _of_state("entry", "The compiled files and their manifest.")
    config = _of_state("config", "The tuned configuration; None for a kernel that was not tuned.")
    latency = _of_state("latency", "The tuned latency in milliseconds; None if it was not tuned.")
    ref_latency = _of_state(
        "ref_latency", "The reference program's latency in milliseconds; None if not measured."
    )

    @property
    def name(self) -> str:
        """``<function>__<10 hexadecimal digits of program, options and target>``."""
        return self._name

    @property
    def params(self) -> list[KernelParam]:
        """All parameters in order, allocated outputs included."""
        return [describe_param(p) for p in self.prim_func.params]

    @property
    def out_idx(self) -> list[int]:
        """Indices into ``params`` of what a call returns."""
        return list(self.prim_func.returns)

    @property
    def cache_path(self) -> Path | None:
        """The folder of the cache that holds the kernel's artifacts; None without a cache."""
        path = self.artifact.path
        return None if path is None else Path(path)

    @property
    def n_regs(self) -> int:
        """Registers a thread, the most over the launches (0 on the CPU)."""
        return self._most("registers")

    @property
    def n_spills(self) -> int:
        """Spilled registers a thread, the most over the launches."""
        return self._most("spills")

    def _most(self, field: str) -> int:
        found = [operator.index(r[field]) for r in self.artifact.manifest["resources"]]
        return max(found, default=0)

    # -- its text ----------------------------------------------------------------------------------
    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The generated text, Triton, CUDA C++ or C++; after the host record unless kernel_only."""
        entry = self.artifact
        names = [n for n in sorted(entry.files) if re.fullmatch(r"launch\d+\.cu", n)]
        text = "\n".join(map(entry.text, (_SOURCES[entry.manifest["language"]], *names)))
        return text if kernel_only else f"{self.get_host_source()}\n{text}"

    @property
    def kernel_source(self) -> str:
        """``get_kernel_source()``."""
        return self.get_kernel_source()

    def get_host_source(self) -> str:
        """The host side as data: grid, parameters and shapes of each launch, as JSON text.

        No host code is generated: one C++ call path reads this record.
        """
        return json.dumps(self.artifact.manifest["record"], indent=1)

    @property
    def host_source(self) -> str:
        """``get_host_source()``."""
        return self.get_host_source()

    def show_source(self, which: str = "kernel") -> None:
        """Write the ``kernel`` text, the ``host`` record or ``both`` to stdout."""
        if which not in ("kernel", "host", "both"):
            raise ArgumentError(f"which: expected kernel, host or both, got {which!r}")
        is_host = which == "host"
        _show(self.host_source if is_host else self.get_kernel_source(which == "kernel"))

    def export_sources(
        self, kernel_path: str | Path | None = None, host_path: str | Path | None = None
    ) -> None:
        """Write the kernel text and the host record to files; ArgumentError if no path is given."""
        if kernel_path is None and host_path is None:
            raise ArgumentError("export_sources: give kernel_path, host_path or both")
        if kernel_path is not None:
            Path(kernel_path).write_text(self.get_kernel_source(), encoding="utf-8")
        if host_path is not None:
            Path(host_path).write_text(self.get_host_source(), encoding="utf-8")

    def get_ptx(self) -> str:
        """The PTX that was assembled, all launches; ArgumentError for a kernel that is not CUDA."""
        return "\n".join(data.decode("utf-8") for data in self._images("ptx"))

    def show_ptx(self) -> None:
        """Write ``get_ptx()`` to stdout."""
        _show(self.get_ptx())

    def export_ptx(self, path: str | Path) -> None:
        """Write ``get_ptx()`` to a file."""
        Path(path).write_text(self.get_ptx(), encoding="utf-8")

    def get_sass(self) -> str:
        """The machine code of the cubins, disassembled; ToolchainError without a disassembler."""
        return "\n".join(_disassemble(cubin) for cubin in self._images("cubin"))

    def show_sass(self) -> None:
        """Write ``get_sass()`` to stdout."""
        _show(self.get_sass())

    def export_sass(self, path: str | Path) -> None:
        """Write ``get_sass()`` to a file."""
        Path(path).write_text(self.get_sass(), encoding="utf-8")

    def _images(self, suffix: str) -> list[bytes]:
        files = self.artifact.files
        names = sorted(n for n in files if n.startswith("launch") and n.endswith("." + suffix))
        if not names:
            raise ArgumentError(
                f"kernel {self._name} for {self.target} has no {suffix}; it is kept for CUDA "
                "kernels unless TILEOPS_CACHE_KEEP leaves it out"
            )
        return [files[n] for n in names]

    def unload(self) -> None:
        """Free the loaded code, as ``JITImpl.unload`` does; the artifact and the op stay."""
        refuse_capture(f"kernel {self._name}: unload")
        state_of(self._name).unload()

    # -- measuring ---------------------------------------------------------------------------------
    def get_profiler(self, tensor_supply_type: TensorSupplyType | None = None) -> Profiler:
        """A profiler that makes inputs for this kernel and times or checks it."""
        from tileops.profiler import Profiler, TensorSupplyType

        supply = TensorSupplyType.Auto if tensor_supply_type is None else tensor_supply_type
        device = "cuda" if self.target.is_gpu else "cpu"
        return Profiler(self.params, self.out_idx, supply, kernel=self, device=device)

    def run_once(self, *args: Any) -> Any:  # noqa: ANN401
        """Call the kernel once, on made inputs if none are given."""
        return self(*args) if args else self.get_profiler().run_once()

    # -- copies ------------------------------------------------------------------------------------
    def __copy__(self, memo: object = None) -> JITKernel:
        return self

    __deepcopy__ = __copy__

    def __reduce__(self) -> tuple[Any, ...]:
        state = state_of(self._name)
        return load_kernel, (state.base, state.program, state.build)

    def __repr__(self) -> str:
        return f"JITKernel({self._name}, {self.target})"


class InterpretedKernel(JITKernel):
    """A kernel under Triton's interpreter, with prints and breakpoints; no files, no torch op."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run the kernel; tensors may be on any device."""
        from tileops.jit.interpreted import run

        try:
            bound = _signature(self.prim_func).bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(f"kernel {self.name}: {error}") from None
        result = run(f"kernel {self.name}", *self._text, bound.arguments)
        return list(result) if isinstance(result, tuple) else result

    @forks.ComputedOnce
    def _text(self) -> tuple[Program, KernelCode]:
        from tileops.jit.interpreted import text_of

        return text_of(self.prim_func, state_of(self._name).build)

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The generated Triton text."""
        return self._text[1].source

    @property
    def artifact(self) -> NoReturn:
        """ArgumentError: nothing is compiled."""
        raise ArgumentError(f"kernel {self.name} is for the interpreter and has no compiled files")

    @property
    def op(self) -> NoReturn:
        """ArgumentError: there is no torch op."""
        raise ArgumentError(f"kernel {self.name} is for the interpreter and has no torch op")


@constant
def _registered_names(name: str) -> str:
    """The op and the scalars: ``op::place name dtype,…``."""
    state = state_of(name)
    op = state.registered()
    dtypes = {p.name: str(p.var.dtype) for p in state.program.scalars()}
    scalars = [
        f"{n} {a.name} {dtypes[a.name]}" for n, a in enumerate(op.spec.inputs()) if a.name in dtypes
    ]
    return f"{op.spec.name}::{','.join(scalars)}"


def _signature(program: Program) -> inspect.Signature:
    """What a call of a kernel takes: the parameters that it does not allocate."""
    names = [p.name for p in program.params if not getattr(p, "allocated", False)]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def _scalar(text: str) -> tuple[int, str, type, str]:
    place, name, dtype = text.split(" ")
    return int(place), name, call_inputs.kind_of(dtype), dtype


def load_kernel(base: str, program: Program, build: Build) -> JITKernel:
    """The kernel of a program, compiled when first used (what a pickled kernel becomes)."""
    state = state_for(base, program, build)
    return InterpretedKernel(state.name) if build.is_interpreted else JITKernel(state.name)


def make_kernel(base: str, program: Program, build: Build) -> JITKernel:
    """The kernel of a program, compiled now; raises what code generation or the compiler raises."""
    kernel = load_kernel(base, program, build)
    _ = kernel._text if isinstance(kernel, InterpretedKernel) else kernel.artifact
    return kernel


def describe_param(param: object) -> KernelParam:
    """What a program's parameter is to a caller."""
    if isinstance(param, TensorParam):
        extents = list(param.buffer.shape)
        if (pack := pack_of(param.buffer.dtype)) > 1:
            extents[-1] = fold.binary("floordiv", extents[-1], fold.const(pack))
        shape = tuple(int(e.value) if isinstance(e, Const) else print_expr(e) for e in extents)
        if param.leading:
            shape = ("...", *shape[1:])
        return KernelParam(
            param.name, param.buffer.dtype.as_torch(), shape, is_output=param.allocated
        )
    var = param.var  # type: ignore[attr-defined]
    return KernelParam(var.name, var.dtype.as_torch(), (), is_scalar=True)


def _show(text: str) -> None:
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _disassemble(cubin: bytes) -> str:
    """The SASS of a cubin; ToolchainError if no tool for it is found, or it fails."""
    command = _disassembler()
    with staging.temporary("sass") as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        done = forks.run_process(
            [*command, str(path)],
            capture_output=True,
            text=True,
            env=settings.compiler_environment(str(folder)),
        )
    if done.returncode != 0:
        raise ToolchainError(f"{command[0]} failed: {done.stderr.strip()}")
    return str(done.stdout)


def _disassembler() -> list[str]:
    for name, option in (("nvdisasm", "-c"), ("cuobjdump", "-sass")):
        found = settings.find_program(name) or _beside_triton(name)
        if found is not None:
            return [found, option]
    raise ToolchainError(
        "no disassembler: install the CUDA toolkit's nvdisasm or cuobjdump (triton brings both)"
    )


def _beside_triton(name: str) -> str | None:
    spec = importlib.util.find_spec("triton")  # located, not imported
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "backends" / "nvidia" / "bin" / name
        if path.is_file():
            return str(path)
    return None
