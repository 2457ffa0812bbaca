"""Owns writing bundles: ops with compiled kernels for given targets, as a folder."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from tileops import cache
from tileops.cache.entry import MANIFEST, OPTIONS, PROGRAM, write_entry
from tileops.cache.files import make_directories, remove, sync_directory, write_file
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.program import Program
from tileops.jit.compiling import Request, obtain, run_all
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel
from tileops.jit.kernel_state import reaches_index64, state_of
from tileops.jit.record import entry_of
from tileops.jit.specialising import specialise
from tileops.jit.targets import TargetLike, default_target, requested_target
from tileops.op.registration import Op, digest_of
from tileops.op.spec import DTypeRule
from tileops.op.variant import Variant
from tileops.target import Target

FORMAT = 1  # of the index
OP_FORMAT = 2  # of op.json
INDEX = "bundle.json"

Config = Mapping[str, Any]
Bundled = JITImpl | JITKernel | tuple[JITImpl, Iterable[Config]]


@dataclass(frozen=True)
class _Wanted:
    """One combination: a specialised program of an op's variant, for one target."""

    op: Op
    variant: Variant
    program: Program
    consts: tuple[int, ...]
    target: Target
    spec: Specialization

    def obtain(self) -> cache.Entry:
        return obtain(
            Request(
                program=self.program,
                target=self.target,
                spec=self.spec,
                op=self.op.spec.name,
                why="bundle",
                sizes={
                    **self.op.spec.dtypes_of(self.variant.static),
                    **dict(zip(_const_sizes(self.variant), self.consts, strict=True)),
                },
            )
        )


def bundle(
    path: str | os.PathLike[str],
    ops: Iterable[Bundled] | Bundled,
    targets: Iterable[TargetLike] | TargetLike = None,
    *,
    index64: bool = False,
) -> Path:
    """Compile ops for ``targets`` and write them to the folder ``path``, which it returns.

    Each of ``ops`` is a kernel, an eager program, or a pair of a program and its configurations:
    mappings as ``par_compile`` takes, with values of ``T.const`` sizes and compile-time parameters.
    A program alone stands for what has been called in this process, and for its defaults where it
    has no ``T.const`` sizes. For each combination both kernels are made, the fast and the general
    one; with ``index64`` also those for tensors of 2^31 - 2^24 elements and more.

    ``targets`` are as in ``jit`` (``"cuda:sm_90"``, ``"cpu:x86-64-v3"``); None is the program's own
    target, else the current device. An older bundle at ``path`` is replaced in one step.

    ArgumentError for a folder that holds something else or cannot be written (found out before
    anything is compiled), a program without a combination, or a target that bundles do not carry;
    and what the compilers raise.
    """
    final = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)
    _refuse_other(final)
    chosen = _targets(targets)
    items: list[object] = [ops] if _is_one(ops) else list(cast("Iterable[Bundled]", ops))
    wanted: dict[object, _Wanted] = {}
    for item in items:
        for one in _wanted_of(item, chosen, index64):
            key = (one.op.handle, repr(one.variant.static), one.consts, str(one.target), one.spec)
            wanted.setdefault(key, one)
    if not wanted:
        raise ArgumentError("bundle: no ops were given")
    stage = final.with_name(f".{final.name}.{secrets.token_hex(6)}")
    with _writing(final):  # before what takes long
        make_directories(stage)
    try:
        entries = _obtain_all([one.obtain for one in wanted.values()])
        with _writing(final):
            _write(stage, list(zip(wanted.values(), entries, strict=True)))
            _put(stage, final)
    finally:
        remove(stage)
    return final


@contextlib.contextmanager
def _writing(final: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"bundle: {final} cannot be written: {error}") from error


def _is_one(ops: object) -> bool:
    if isinstance(ops, tuple) and len(ops) == 2:
        return not isinstance(ops[1], (JITImpl, JITKernel, tuple))  # a program and configurations
    return isinstance(ops, (JITImpl, JITKernel))


def _targets(targets: Iterable[TargetLike] | TargetLike) -> list[Target | None]:
    if targets is None or isinstance(targets, (str, Target, Mapping)):
        targets = [targets]
    found = [requested_target(t) for t in targets]
    for target in found:
        if target is not None and target.kind not in ("cpu", "cuda"):
            raise ArgumentError(f"bundle: a bundle holds cpu and cuda kernels, not {target}")
    return found


def _obtain_all(jobs: Sequence[Callable[[], cache.Entry]]) -> list[cache.Entry]:
    return [entry for entry in run_all(jobs, None, False) if entry is not None]


# -- what to compile -----------------------------------------------------------------------------
def _wanted_of(item: object, targets: Sequence[Target | None], index64: bool) -> list[_Wanted]:
    match item:
        case JITKernel():
            return _of_kernel(item, targets, index64)
        case JITImpl():
            return _of_program(item, None, targets, index64)
        case (JITImpl() as program, [*configs]):
            return _of_program(program, cast("list[Config]", configs), targets, index64)
        case _:
            raise ArgumentTypeError(
                "bundle: each op is a program, a kernel, or a pair (program, configurations); got "
                f"{type(item).__name__}"
            )


def _of_kernel(kernel: JITKernel, targets: Sequence[Target | None], index64: bool) -> list[_Wanted]:
    state = state_of(kernel.name)
    own = state.build.target
    for target in targets:
        if own is not None and target not in (None, own):
            raise ArgumentError(
                f"bundle: kernel {kernel.name} was compiled for {own} and cannot be bundled for "
                f"{target}"
            )
    op = state.op()
    combination = (op.variant(()), state.program, ())
    seen = any(wide for _, _, wide in op.combinations())
    return _each(op, [combination], targets, own, index64 or seen)


def _of_program(
    program: JITImpl,
    configs: list[Config] | None,
    targets: Sequence[Target | None],
    index64: bool,
) -> list[_Wanted]:
    if program.is_lazy_mode():
        raise ArgumentTypeError(
            f"bundle: {program.func.__name__} is lazy: pass its kernels, as it returns them"
        )
    own = program._build.target
    if configs is not None:
        found: list[_Wanted] = []
        for config in configs:
            op, combinations = _configured(program, config)
            found += _each(op, combinations, targets, own, index64)
        return found
    op, called, wide = _called(program)
    return _each(op, called, targets, own, index64 or wide)


_Combination = tuple[Variant, Program, tuple[int, ...]]


@dataclass(frozen=True)
class _Route:
    """The op that compile-time values lead to, and the values that it carries."""

    program: JITImpl
    op: Op
    values: Mapping[str, object]

    def static(
        self, dtypes: Mapping[str, object], left_out: Container[str] = ()
    ) -> tuple[object, ...]:
        """What chooses the variant with these dtypes, without the optional tensors left out."""
        return self.program._eager.static_of(self.op.spec, self.values, dtypes, left_out)


def _route(program: JITImpl, given: Mapping[str, object]) -> _Route:
    program.definition.static_values(given)  # refuses one that leaves out a required value
    program, given = program.carrier(given)
    provider = program._eager
    op = provider.register(given, is_derived=program._is_derived)
    return _Route(program, op, given)


def _configured(program: JITImpl, config: Config) -> tuple[Op, list[_Combination]]:
    """The op and the combinations of a configuration: one for each dtype that it leaves open."""
    values, extra = program.definition.bind_arguments((), config)
    inputs = {n: values.pop(n) for n in program.definition.inputs if n in values}
    route = _route(program, values)
    rules = route.op.spec.dtype_rules
    open_rules = [r for r in rules if r.name not in extra and not _tells(r, route.op, inputs)]
    left_out = [n for n, value in inputs.items() if value is None]
    found = []
    for dtypes in _choices(open_rules):
        given = {**inputs, **extra, **dtypes, **route.values}
        made = specialise(route.program.definition, (), given)
        variant = route.op.variant(route.static(made.static, left_out))
        found.append((variant, made.program, tuple(made.consts.values())))
    return route.op, found


def _tells(rule: DTypeRule, op: Op, inputs: Mapping[str, object]) -> bool:
    return any(hasattr(inputs.get(op.spec.args[n].name), "dtype") for n in rule.args)


def _choices(rules: Iterable[DTypeRule]) -> list[dict[str, str]]:
    """Each combination of the dtypes that the rules allow."""
    names = [rule.name for rule in rules]
    each = itertools.product(*(rule.dtypes for rule in rules))
    return [dict(zip(names, dtypes, strict=True)) for dtypes in each]


def _called(program: JITImpl) -> tuple[Op, list[_Combination], bool]:
    provider = program._eager
    op = provider.op or _route(program, {}).op
    called = op.combinations()
    wanted = [(variant, consts) for variant, consts, _ in called]
    sizes: list[str] = []
    if not any(p.is_required for p in program.definition.statics({})):
        route = _route(program, {})
        for dtypes in _choices(op.spec.dtype_rules):
            default = op.variant(route.static(dtypes))
            sizes = _const_sizes(default)
            if not sizes and all(variant.static != default.static for variant, _ in wanted):
                wanted.append((default, ()))
    if not wanted:
        name = program.func.__name__
        needs = (
            f"has the T.const sizes {', '.join(sizes)}" if sizes else "needs compile-time values"
        )
        raise ArgumentError(
            f"bundle: {name} {needs} and was not called yet; give them: ({name}, "
            f"[{{{(sizes or ['name'])[0]!r}: ...}}])"
        )
    found = []
    for variant, consts in wanted:
        values = provider.traced_values(variant.static)
        named = dict(zip(_const_sizes(variant), consts, strict=True))
        found.append((variant, provider.trace_special(op.spec, values, named), consts))
    return op, found, any(wide for _, _, wide in called)


def _const_sizes(variant: Variant) -> list[str]:
    return [size.name for size in variant.sizes if size.kind == "const"]


def _each(
    op: Op,
    combinations: Sequence[_Combination],
    targets: Sequence[Target | None],
    own: Target | None,
    wide: bool,
) -> list[_Wanted]:
    found = []
    tuned = getattr(op.provider, "tuned", None)  # kernels are what they are
    for variant, program, consts in combinations:
        widths = {True} if reaches_index64(program) else {False, wide}
        for target in targets:
            final = target or own or default_target()
            for fast, width in itertools.product((True, False), sorted(widths)):
                spec = Specialization(fast, width)
                chosen = None if tuned is None else tuned(op, variant, final, spec, consts)
                made = program if chosen is None else chosen
                found.append(_Wanted(op, variant, made, consts, final, spec))
    return found


# -- what to write -------------------------------------------------------------------------------
def _write(stage: Path, made: Sequence[tuple[_Wanted, cache.Entry]]) -> None:
    for part in (stage, stage / "ops", stage / "programs"):
        make_directories(part)
    manifests = {entry.hash: _write_program(stage / "programs", entry) for _, entry in made}
    by_op: dict[int, list[tuple[_Wanted, cache.Entry]]] = {}
    for wanted, entry in made:
        by_op.setdefault(wanted.op.handle, []).append((wanted, entry))
    index: dict[str, object] = {}
    for group in by_op.values():
        spec = group[0][0].op.spec
        name = spec.name if spec.namespace == "tileops" else f"{spec.namespace}.{spec.name}"
        data = _rendered(_op_document(group, manifests))
        make_directories(stage / "ops" / name)
        write_file(stage / "ops" / name / "op.json", data)
        index[name] = _fact(data)
    write_file(stage / INDEX, _rendered({"format": FORMAT, "ops": index}))
    for part in (stage / "ops", stage / "programs", stage):
        sync_directory(part)


def _write_program(programs: Path, entry: cache.Entry) -> dict[str, object]:
    images = {launch["image"] for launch in entry.manifest["record"]["launches"]}
    kept = {n: d for n, d in entry.files.items() if n in images or n in (PROGRAM, OPTIONS)}
    folder = programs / entry.hash
    if not folder.exists():  # two variants of an op can share a program
        write_entry(folder, replace(entry, files=kept, links={}))
    return _fact((folder / MANIFEST).read_bytes())


def _op_document(
    group: Sequence[tuple[_Wanted, cache.Entry]], manifests: Mapping[str, object]
) -> dict[str, object]:
    variants: dict[str, dict[str, Any]] = {}
    for wanted, entry in group:
        described = wanted.variant.to_json()
        key = json.dumps(described, sort_keys=True)
        if key not in variants:
            traced = wanted.op.provider.trace_symbolic(wanted.variant.static)
            variants[key] = {"variant": described, "digest": digest_of(traced, 64), "entries": []}
        variants[key]["entries"].append(
            {
                "target": str(wanted.target),
                "program": entry.hash,
                "manifest": manifests[entry.hash],
                "entry": entry_of(
                    entry.manifest["record"],
                    wanted.op.spec,
                    wanted.variant,
                    target=wanted.target,
                    spec=wanted.spec,
                    consts=wanted.consts,
                ),
            }
        )
    op = group[0][0].op
    identity = op.provider.identity(op.spec)
    return {
        "format": OP_FORMAT,
        "op": op.spec.to_json(),
        "definition": identity.digest,
        "parts": dict(identity.parts),
        "aliases": [],
        "variants": list(variants.values()),
    }


def _rendered(value: object) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode("ascii")


def _fact(data: bytes) -> dict[str, object]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _refuse_other(final: Path) -> None:
    if os.path.lexists(final) and not (
        final.is_dir() and ((final / INDEX).is_file() or not any(final.iterdir()))
    ):
        raise ArgumentError(f"bundle: {final} exists and is no bundle; choose another folder")


def _put(stage: Path, final: Path) -> None:
    aside = stage.with_name(stage.name + ".old")
    if final.exists():
        final.rename(aside)
    stage.rename(final)
    remove(aside)
    sync_directory(final.parent)
