"""The writer of bundles: ops with compiled kernels for given targets, as a folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from tileops import cache
from tileops.cache.entry import MANIFEST, OPTIONS, PROGRAM, fact_of, write_entry
from tileops.cache.files import make_directories, remove, sync_directory, write_file
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.extern import with_words, words_of
from tileops.jit import bundle_index
from tileops.jit.choosing import Words, general_words
from tileops.jit.compiling import Request, obtain, run_all
from tileops.jit.eager import EagerProvider
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel
from tileops.jit.provider import CodeProvider, Wanted, reaches_index64, state_of
from tileops.jit.serving import ptx_of
from tileops.jit.specialising import specialise
from tileops.jit.targets import TargetLike, default_target, requested_target
from tileops.op.registration import Op, digest_of
from tileops.op.spec import DTypeRule
from tileops.op.variant import Variant
from tileops.target import Target, parse_target

FORMAT = 1  # of the index
OP_FORMAT = 2  # of op.json
INDEX = "bundle.json"

Config = Mapping[str, Any]
Bundled = JITImpl | JITKernel | tuple[JITImpl, Iterable[Config]]


# What to compile, and the op, variant and facts that it is for.
_Job = tuple[Wanted, Request]


def bundle(
    path: str | os.PathLike[str],
    ops: Iterable[Bundled] | Bundled,
    targets: Iterable[TargetLike] | TargetLike = None,
    *,
    index64: bool = False,
    ptx: Iterable[str] | str = (),
) -> Path:
    """Compile ops for ``targets`` and write them to the folder ``path``, which it returns.

    Each of ``ops`` is a kernel, an eager program, or a pair of a program and its configurations:
    mappings as ``par_compile`` takes, with values of ``T.const`` sizes and compile-time parameters.
    A program alone stands for what this process has called, and for its defaults if it has no
    ``T.const`` sizes. For each combination the fast and the general kernel are made; with
    ``index64`` also those for tensors of 2^31 - 2^24 elements and more.

    ``ptx`` names GPU architectures (``"sm_80"``) whose PTX the bundle holds beside the cubins,
    which are made too: newer GPUs without a cubin run it, and the driver compiles it for them.

    ``targets`` are as in ``jit`` (``"cuda:sm_90"``, ``"cpu:x86-64-v3"``); None is the program's own
    target, else the current device. An older bundle at ``path`` is replaced in one step.

    Before anything is compiled: ArgumentError for a folder that holds something else or cannot be
    written, a program without a combination, and a target that bundles do not hold. Afterwards
    ArgumentError for a program that has no PTX.
    """
    final = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)
    is_bundle = (final / INDEX).is_file() or (final.is_dir() and not any(final.iterdir()))
    if os.path.lexists(final) and not is_bundle:
        raise ArgumentError(f"bundle: {final} exists and is not a bundle; choose another folder")
    with_ptx = _ptx_targets(ptx)
    chosen = list(dict.fromkeys([*_targets(targets), *with_ptx]))
    items: list[object] = [ops] if _is_one(ops) else list(cast("Iterable[Bundled]", ops))
    jobs: dict[object, _Job] = {}
    for item in items:
        for job in _jobs_of(item, chosen, index64):
            one = job[0]
            words = words_of(job[1].program)
            what = (one.op.handle, repr(one.variant.static), one.consts, words)
            jobs.setdefault((*what, str(one.target), one.spec), job)
    if not jobs:
        raise ArgumentError("bundle: no ops were given")
    stage = final.with_name(f".{final.name}.{secrets.token_hex(6)}")
    with _writing(final):  # before what takes long
        make_directories(stage)
    try:
        entries = run_all([partial(obtain, request) for _, request in jobs.values()], None, False)
        wanted = [one for one, _ in jobs.values()]
        with _writing(final):
            made = list(zip(wanted, cast("list[cache.Entry]", entries), strict=True))
            _write(stage, made, with_ptx)
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


def _ptx_targets(ptx: Iterable[str] | str) -> list[Target]:
    found = []
    for text in (ptx,) if isinstance(ptx, str) else ptx:
        target = parse_target(text if ":" in text else f"cuda:{text}")
        if target.kind != "cuda" or not target.arch[-1].isdigit():
            raise ArgumentError(
                f"bundle: ptx={text!r}: expected an architecture whose PTX newer GPUs run, such as "
                f"sm_80; code for {target} runs there alone"
            )
        found.append(target)
    return found


# -- what to compile -----------------------------------------------------------------------------
def _jobs_of(item: object, targets: Sequence[Target | None], index64: bool) -> list[_Job]:
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


def _of_kernel(kernel: JITKernel, targets: Sequence[Target | None], index64: bool) -> list[_Job]:
    state = state_of(kernel.name)
    own = state.build.target
    for target in targets:
        if own is not None and target not in (None, own):
            raise ArgumentError(
                f"bundle: kernel {kernel.name} was compiled for {own} and cannot be bundled for "
                f"{target}"
            )
    op = state.registered()
    called = op.combinations()
    found = [_Combination(op.variant(()), (), words) for *_, words in called if words]
    seen = any(wide for _, _, wide, _ in called)
    found.append(_Combination(op.variant(()), ()))
    return _jobs(state, op, found, targets, index64 or seen)


def _of_program(
    program: JITImpl, configs: list[Config] | None, targets: Sequence[Target | None], index64: bool
) -> list[_Job]:
    if program.is_lazy_mode():
        raise ArgumentTypeError(
            f"bundle: {program.func.__name__} is lazy: pass its kernels, as it returns them"
        )
    if configs is None:
        op, called, wide = _called(program)
        return _jobs(program._eager, op, called, targets, index64 or wide)
    return [job for c in configs for job in _jobs(*_configured(program, c), targets, index64)]


class _Combination(NamedTuple):
    """A variant with the values of its const sizes.

    ``words`` are facts that foreign kernels assume of a call, ``sizes`` what tells such facts.
    """

    variant: Variant
    consts: tuple[int, ...]
    words: Words | None = None
    sizes: Mapping[str, int] = {}


def _configured(program: JITImpl, config: Config) -> tuple[EagerProvider, Op, list[_Combination]]:
    """The op and the combinations of a configuration: one for each dtype that it leaves open."""
    values, extra = program.definition.bind_arguments((), config)
    inputs = {n: values.pop(n) for n in program.definition.inputs if n in values}
    provider, op, given = program.routed(values)
    typed = {n for n, value in inputs.items() if hasattr(value, "dtype")}
    rules = [
        rule
        for rule in op.spec.dtype_rules
        if rule.name not in extra and typed.isdisjoint(op.spec.args[n].name for n in rule.args)
    ]
    left_out = [n for n, value in inputs.items() if value is None]
    found = []
    for dtypes in _choices(rules):
        made = specialise(provider.definition, (), {**inputs, **extra, **dtypes, **given})
        variant = op.variant(provider.static_of(op.spec, given, made.static, left_out))
        consts = tuple(made.consts.values())
        found.append(_Combination(variant, consts, sizes=made.sizes))
    return provider, op, found


def _choices(rules: Iterable[DTypeRule]) -> list[dict[str, str]]:
    """Each combination of the dtypes that the rules allow."""
    names = [rule.name for rule in rules]
    each = itertools.product(*(rule.dtypes for rule in rules))
    return [dict(zip(names, dtypes, strict=True)) for dtypes in each]


def _called(program: JITImpl) -> tuple[Op, list[_Combination], bool]:
    """What calls have asked for, and the defaults; whether a call had 64-bit offsets."""
    op = program._eager.op or program.routed({})[1]
    called = op.combinations()
    found = [_Combination(variant, consts, words or None) for variant, consts, _, words in called]
    sizes: list[str] = []
    if not any(p.is_required for p in program.definition.statics({})):
        provider, op_of_defaults, given = program.routed({})
        for dtypes in _choices(op.spec.dtype_rules):
            default = op.variant(provider.static_of(op_of_defaults.spec, given, dtypes))
            sizes = [size.name for size in default.sizes if size.kind == "const"]
            if not sizes and all(one.variant.static != default.static for one in found):
                found.append(_Combination(default, ()))
    if not found:
        name, lacks = program.func.__name__, "needs compile-time values"
        if sizes:
            lacks = f"has the T.const sizes {', '.join(sizes)}"
        raise ArgumentError(
            f"bundle: {name} {lacks} and was not called yet; give them: ({name}, "
            f"[{{{(sizes or ['name'])[0]!r}: ...}}])"
        )
    return op, found, any(wide for _, _, wide, _ in called)


def _jobs(
    provider: CodeProvider,
    op: Op,
    combinations: Iterable[_Combination],
    targets: Sequence[Target | None],
    wide: bool,
) -> list[_Job]:
    found: list[_Job] = []
    for one, target in itertools.product(combinations, targets):
        final = target or provider.build.target or default_target()
        default = Wanted(
            op, one.variant, final, Specialization(), one.consts, one.sizes, words=one.words
        )
        is_large = reaches_index64(provider.request_for(default).program)
        widths = (True,) if is_large else (False, True) if wide else (False,)
        for fast, index64 in itertools.product((True, False), widths):
            wanted = replace(default, spec=Specialization(fast, index64))
            found += _with_general(provider, wanted)
    return found


def _with_general(provider: CodeProvider, wanted: Wanted) -> Iterator[_Job]:
    """The job, and where foreign kernels assume facts of numbers also the one without them."""
    made = provider.request_for(provider.measured(wanted))
    name, sizes = wanted.op.spec.name, made.sizes
    programs = [made.program]
    general = general_words(made.program)
    if general is not None and general != words_of(made.program):
        programs.append(with_words(made.program, general))
    for program in programs:
        yield wanted, Request(program, wanted.target, wanted.spec, name, "bundle", sizes)


# -- what to write -------------------------------------------------------------------------------
def _write(
    stage: Path, made: Sequence[tuple[Wanted, cache.Entry]], with_ptx: Sequence[Target]
) -> None:
    for part in (stage, stage / "ops", stage / "programs"):
        make_directories(part)
    manifests: dict[str, object] = {}
    by_op: dict[int, list[tuple[Wanted, cache.Entry]]] = {}
    for wanted, entry in made:
        by_op.setdefault(wanted.op.handle, []).append((wanted, entry))
        folder = stage / "programs" / entry.hash
        if entry.hash not in manifests:  # two variants of an op can share a program
            images = {launch["image"] for launch in entry.manifest["record"]["launches"]}
            if wanted.target in with_ptx:
                images |= _ptx_of(images, wanted, entry)
            kept = {n: d for n, d in entry.files.items() if n in (*images, PROGRAM, OPTIONS)}
            write_entry(folder, replace(entry, files=kept, links={}))
            manifests[entry.hash] = fact_of((folder / MANIFEST).read_bytes())
    index: dict[str, object] = {}
    for group in by_op.values():
        spec = group[0][0].op.spec
        name = spec.name if spec.namespace == "tileops" else f"{spec.namespace}.{spec.name}"
        data = _rendered(_op_document(group, manifests))
        make_directories(stage / "ops" / name)
        write_file(stage / "ops" / name / "op.json", data)
        index[name] = fact_of(data)
    programs = {entry.hash: entry for _, entry in made}
    write_file(stage / bundle_index.INDEX, _rendered(bundle_index.described(programs.values())))
    write_file(stage / INDEX, _rendered({"format": FORMAT, "ops": index}))
    for part in (stage / "ops", stage / "programs", stage):
        sync_directory(part)


def _ptx_of(images: Iterable[str], wanted: Wanted, entry: cache.Entry) -> set[str]:
    names = {ptx_of(image) for image in images}
    if missing := names - set(entry.files):
        raise ArgumentError(
            f"bundle: {wanted.op.spec.name} for {wanted.target} has no {min(missing)}: the cache's "
            f"entry {entry.hash[:12]} was stored without PTX (TILEOPS_CACHE_KEEP), or holds a "
            "kernel that was given as a cubin; bundle it without ptx=, or compile it into another "
            "cache"
        )
    return names


def _op_document(
    group: Sequence[tuple[Wanted, cache.Entry]], manifests: Mapping[str, object]
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
                "entry": wanted.entry_of(entry),
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


def _put(stage: Path, final: Path) -> None:
    aside = stage.with_name(stage.name + ".old")
    if final.exists():
        final.rename(aside)
    stage.rename(final)
    remove(aside)
    sync_directory(final.parent)
