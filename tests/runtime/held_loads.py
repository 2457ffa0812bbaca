"""Loads two kernels of one image on two devices at once, from threads that hold the interpreter's lock.

Run as a program of its own, which may hang: arguments are the recorded driver, and the library of load_held.cpp.
"""

from __future__ import annotations

import ctypes
import sys
import threading

from tests.kit import descriptions as d
from tileops import runtime

ROUNDS = 20


def make() -> tuple[int, int]:
    """An op whose entry launches two kernels of one image."""
    handle = runtime.create_op(d.op(d.fresh_name("held"), "(Tensor t0) -> ()", [d.arg("t0")]))
    number = runtime.add_variant(
        handle, d.variant(tensors=[d.tensor(0, "t0", [d.bind(0)])], sizes=[d.size("N")])
    )
    launches = [d.launch("one.cubin", name, 0, [d.p_tensor(0)]) for name in ("k", "m")]
    entry = d.entry(device="cuda", capability=90, host=d.host(["size:0"]), tensor_order=[{"arg": 0}], launches=launches)  # fmt: skip
    runtime.add_entry(handle, number, entry, {"one.cubin": b"FAKE\nk 8\nm 8\n"})
    return handle, number


def load_on_both(held: ctypes.PyDLL, handle: int, number: int) -> list[int]:
    """What the two loads return: 0 each."""
    start = threading.Barrier(2)
    found: list[int] = []

    def load(device: int) -> None:
        start.wait()
        found.append(held.load_held(ctypes.c_uint64(handle), number, device))

    threads = [threading.Thread(target=load, args=(device,)) for device in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main(driver_path: str, library: str) -> None:
    fake = ctypes.CDLL(driver_path)
    runtime.set_driver_library(driver_path)
    held = ctypes.PyDLL(library)  # keeps the interpreter's lock over a call
    fake.fake_load_delay(20_000)
    for _ in range(ROUNDS):
        handle, number = make()
        assert load_on_both(held, handle, number) == [0, 0]
        runtime.unload(handle)
    print("good")


if __name__ == "__main__":
    main(*sys.argv[1:])
