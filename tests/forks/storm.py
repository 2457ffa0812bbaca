"""Forks while a thread of the parent is busy with one kind of work; each child does the same work by itself.

python -m tests.forks.storm <kind> <forks>

Prints how many children were right. A child that hangs prints its stacks and ends after a minute.
"""

from __future__ import annotations

import collections
import faulthandler
import itertools
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

import tileops
import tileops.language as T
from tileops import cache, option
from tileops.autotuner import autotune

SECONDS = 60  # in which a child is right, or hangs
ALL_OPS = 8000  # that one process registers


def shifted(A, by: int = 1):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i] + by
    return B


def slow(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            B[bx * 256 + i] = T.exp(T.sin(T.exp(T.sin(A[bx * 256 + i]))))
    return B


def added(N, by=1.0, block=32):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + by

    return main


X = torch.arange(100.0)
_names = itertools.count()

Work = Callable[[], object]
# Kinds by name: makes what the thread repeats, and what a child does. A child's work raises where it is wrong.
KINDS: dict[str, Callable[[], tuple[Work, Work]]] = {}


def kind(make: Callable[[], tuple[Work, Work]]) -> Callable[[], tuple[Work, Work]]:
    KINDS[make.__name__] = make
    return make


def right(got: torch.Tensor, by: float = 1) -> None:
    if not torch.equal(got, X + by):
        raise AssertionError(f"expected {by} more, got {got}")


def new_program() -> tileops.JITImpl:
    number = next(_names)
    if number > ALL_OPS:
        time.sleep(0.01)
        number = ALL_OPS
    return tileops.jit(shifted, name=f"storm_{number}_{os.getpid()}")


@kind
def registering() -> tuple[Work, Work]:
    right(new_program()(X))
    return new_program, lambda: right(new_program()(X))


@kind
def redefining() -> tuple[Work, Work]:
    def define() -> tileops.JITImpl:
        if next(_names) > ALL_OPS:
            time.sleep(0.01)
        return tileops.jit(shifted, name="storm_redefined")

    first = define()
    right(first(X))

    def child() -> None:
        right(first(X))
        right(define()(X))

    return define, child


@kind
def loading() -> tuple[Work, Work]:
    program = new_program()

    def load() -> None:
        program.unload()
        right(program(X))

    return load, lambda: right(program(X))


@kind
def unloading() -> tuple[Work, Work]:
    program, other = new_program(), tileops.jit(slow, name="storm_slow")
    other(X)
    big = torch.ones(1 << 19)

    def unload() -> None:
        right(program(X))
        other(big)  # a child is forked in the middle of it
        program.unload()

    def child() -> None:
        other.unload()
        program.unload()
        right(program(X))
        other(X)

    return unload, child


@kind
def compiling() -> tuple[Work, Work]:
    program = tileops.jit(shifted, name="storm_compiled")
    current = itertools.count(2)
    latest = [1]

    def call(by: int) -> None:
        right(program(X, by=by), by)

    def compile_next() -> None:
        latest[0] = next(current)
        call(latest[0])

    return compile_next, lambda: call(latest[0])


@kind
def building_kernels() -> tuple[Work, Work]:
    def build() -> None:
        made = tileops.jit(added, out_idx=[-1])(
            100, float(random.randrange(8)), random.choice((32, 64))
        )
        made.unload()
        cache.store().clear_memory()
        made(X)

    def child() -> None:
        build()
        right(tileops.jit(added, out_idx=[-1])(100, 3.0)(X), 3)

    for by, block in itertools.product(range(8), (32, 64)):
        tileops.jit(added, out_idx=[-1])(100, float(by), block)(X)
    return build, child


@kind
def calling_torch_ops() -> tuple[Work, Work]:
    def call() -> None:
        program = new_program()
        packet = getattr(torch.ops.tileops, program.op._schema.name.rpartition(":")[2])
        right(packet(X))

    call()
    return call, call


@kind
def hitting_the_cache() -> tuple[Work, Work]:
    program = new_program()

    def hit() -> None:
        cache.store().clear_memory()
        program.unload()
        right(program(X))

    return hit, hit


@kind
def changing_settings() -> tuple[Work, Work]:
    program = new_program()

    def change() -> None:
        tileops.stats(reset=True)
        remove = tileops.on_compile(lambda event: None)
        with option.check(random.random() < 0.5), option.strict(False), option.verbose(False):
            right(program(X))
        remove()

    return change, change


@kind
def loading_bundles() -> tuple[Work, Work]:
    root = Path(tempfile.mkdtemp(prefix="bundles", dir=os.environ["TILEOPS_CACHE_DIR"]))
    pid = os.fork()
    if pid == 0:  # the ops of a bundle may not be defined in the process that loads it
        for number in range(20):
            program = tileops.jit(shifted, name=f"storm_bundle::op{number}")
            tileops.bundle(root / str(number), [(program, [{}])], "cpu")
        os._exit(0)
    os.waitpid(pid, 0)
    unseen = iter(range(20))

    def load() -> None:
        number = next(unseen, random.randrange(20))
        for op in tileops.load_bundle(root / str(number)).values():
            right(op(X))

    return load, load


@kind
def looking_up_tunings() -> tuple[Work, Work]:
    def timer(config: dict[str, int], kernel: object, inputs: object) -> float:
        return float(config["block"])

    def tuned() -> tileops.JITImpl:
        tune = autotune(configs=[{"block": 64}, {"block": 32}], timer=timer)
        return tune(tileops.jit(added, out_idx=[-1]))

    def look_up() -> None:
        right(tuned()(100, 2.0)(X), 2)

    look_up()
    return look_up, look_up


@kind
def compiling_with_triton() -> tuple[Work, Work]:
    numbers = itertools.count()

    def compile_one() -> None:
        by = float(next(numbers) * 1000 + os.getpid() % 1000)
        kernel = tileops.compile(added(100, by), target="cuda:sm_90", out_idx=[-1])
        if "ptx" not in kernel.get_ptx() and ".version" not in kernel.get_ptx():
            raise AssertionError("no PTX")

    compile_one()
    return compile_one, compile_one


# -- the storm ---------------------------------------------------------------------------------
def storm(name: str, forks: int) -> dict[str, int]:
    """Right and wrong children of this many forks, while a thread works."""
    work, child = KINDS[name]()
    child()  # what it needs once is there
    stop = threading.Event()
    failures: list[str] = []

    def repeat() -> None:
        while not stop.is_set():
            try:
                work()
            except BaseException:
                failures.append(traceback.format_exc())
                return

    thread = threading.Thread(target=repeat)
    thread.start()
    seen = collections.Counter[str]()
    for _ in range(forks):
        time.sleep(random.random() * 0.02)
        seen[_outcome(child)] += 1
        if seen["hung"] >= 3:
            break
    stop.set()
    thread.join()
    if failures:
        raise AssertionError(f"the parent's thread: {failures[0]}")
    return dict(seen)


def _outcome(child: Work) -> str:
    pid = os.fork()
    if pid == 0:
        status = 1
        faulthandler.dump_traceback_later(SECONDS, exit=True)  # with status 1
        try:
            child()
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            status = 3
        finally:
            os._exit(status)
    end = time.monotonic() + 2 * SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return {0: "right", 3: "wrong"}.get(os.waitstatus_to_exitcode(status), "hung")
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Python itself warns of forks beside threads
    torch.set_num_threads(1)
    found = storm(sys.argv[1], int(sys.argv[2]))
    print(sys.argv[1], *(f"{count} {outcome}" for outcome, count in sorted(found.items())))
    sys.exit(0 if set(found) <= {"right"} else 1)
