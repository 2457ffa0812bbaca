"""Calls of a CUDA op from the dispatcher down to a recorded driver; run as a program of its own.

Arguments: the recorded driver, and a stand-in for libtorch_cuda.so. A process of its own, because the stand-in
must be what the runtime finds at its first look.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import pytest
import torch

from tests.kit import descriptions as d
from tileops import runtime
from tileops.errors import CompileMissError, DriverError

ILLEGAL_ADDRESS = 700  # a CUresult (cuda.h)


def main(driver_path: str, torch_cuda_path: str) -> None:
    fake = ctypes.CDLL(driver_path)
    fake.fake_log.restype = ctypes.c_char_p
    ctypes.CDLL(torch_cuda_path)
    runtime.set_driver_library(driver_path)

    def log() -> list[dict[str, Any]]:
        return [json.loads(line) for line in fake.fake_log().decode().splitlines()]

    name = d.fresh_name("device")
    handle = runtime.create_op(
        d.op(name, "(SymInt n, *, Device? device=None) -> ()",
             [d.arg("n", "int", "scalar"), d.arg("device", "device?", "device")])
    )  # fmt: skip
    requests: list[dict[str, Any]] = []

    def resolve(handle: int, request: dict[str, Any]) -> None:
        requests.append(request)
        if request["kind"] == "variant":
            runtime.add_variant(
                handle, d.variant(scalars=[d.scalar(0, "n", "int32")], host=d.host(["scalar:0"]))
            )
            return
        entry = d.entry(device="cuda", host=d.host(["scalar:0"]), consts=[], fast=request["fast"],
                        launches=[d.launch("k.cubin", "k", 0, [d.p_scalar(0, "i32")])])  # fmt: skip
        runtime.add_entry(handle, request["variant"], entry, {"k.cubin": b"FAKE\nk 4\n"})

    runtime.set_resolver(handle, resolve)
    call = getattr(torch.ops.tileops, name).default

    # A miss under capture: an error before any driver call that a capture forbids, and no resolver.
    fake.fake_capture(1)
    assert runtime.is_capturing(0)
    expect_miss(lambda: call(7, device="cuda:0"))
    assert requests == []
    assert log() == []
    fake.fake_capture(0)
    assert not runtime.is_capturing(0)

    call(7, device="cuda:1")
    assert [r["kind"] for r in requests] == ["variant", "entry"]
    assert requests[1] == {
        "kind": "entry", "variant": 0, "device_type": "cuda", "device_index": 1, "capability": 90, "consts": [],
        "fast": True, "index64": False, "sizes": {}, "scalars": {"n": 7}, "entries": 0,
    }  # fmt: skip
    launches = [line for line in log() if line["call"] == "launch"]
    assert [(line["device"], line["stream"], line["params"]) for line in launches] == [
        (1, 0x5001, ["07000000"])
    ]

    # The entry exists now, but its image is not on device 0: loading it would break a capture as well.
    fake.fake_capture(1)
    expect_miss(lambda: call(7, device="cuda:0"))
    call(9, device="cuda:1")  # loaded: captures directly
    fake.fake_capture(0)
    call(7, device="cuda:0")
    assert [line["device"] for line in log() if line["call"] == "launch"] == [1, 1, 0]
    assert len(requests) == 2  # one architecture, one entry

    choose_by_facts(fake, log)

    # Another architecture is another entry.
    fake.fake_devices(3)
    call(7, device="cuda:2")
    assert requests[-1]["capability"] == 80

    # A kernel that faults: the next call fails, and says what ran before it.
    runtime.set_origin(handle, "somewhere.py:12")
    fake.fake_fail(b"fault", ILLEGAL_ADDRESS)
    call(7, device="cuda:1")
    fake.fake_fail(b"fault", 0)
    with pytest.raises(DriverError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        call(8, device="cuda:1")
    assert f"newest first (TILEOPS_SYNC=1 finds the one that failed):\n{name}" in str(caught.value)
    assert runtime.recent_launches(1)[0].startswith(name)
    fake.fake_fault_clear()

    # With TILEOPS_SYNC the call itself fails, and names what it was; an earlier fault is not blamed on it.
    runtime.set_sync(True)
    call(7, device="cuda:1")
    fake.fake_fail(b"fault", ILLEGAL_ADDRESS)
    with pytest.raises(DriverError) as caught:
        call(7, device="cuda:1")
    assert f"the call tileops::{name}(n = 7), program somewhere.py:12 failed on cuda:1" in str(
        caught.value
    )
    fake.fake_fail(b"fault", 0)
    with pytest.raises(DriverError, match="a kernel that was launched before this call failed"):
        call(7, device="cuda:1")
    print("good")


def choose_by_facts(fake: ctypes.CDLL, log: Any) -> None:
    """Entries of one key that differ in facts of a number: each call finds its own, or asks for it."""
    name = d.fresh_name("chosen")
    handle = runtime.create_op(
        d.op(name, "(SymInt n, *, Device? device=None) -> ()",
             [d.arg("n", "int", "scalar"), d.arg("device", "device?", "device")])
    )  # fmt: skip
    asked: list[int] = []

    def resolve(handle: int, request: dict[str, Any]) -> None:
        if request["kind"] == "variant":
            runtime.add_variant(
                handle, d.variant(scalars=[d.scalar(0, "n", "int64")], host=d.host(["scalar:0"]))
            )
            return
        n = request["scalars"]["n"]
        asked.append(n)
        # 1, divisible by 16, and 64 bits wide, as the code for foreign kernels has them.
        fact = 1 if n == 1 else (2 if n % 16 == 0 else 0) | (4 if n >= 1 << 31 else 0)
        add(request["variant"], fact, [d.p_scalar(0, "i64")])

    def add(variant: int, fact: int, params: list[d.Json]) -> None:
        choice = {"host": d.host(["scalar:0"]), "keys": [{"slot": 0, "mask": 7}], "words": [fact]}
        made = d.launch("k.cubin", f"k{fact}", 0, params)
        made["grid"] = 1
        entry = d.entry(
            device="cuda", host=d.host(["scalar:0"], ["const", 1]), launches=[made], choice=choice
        )
        runtime.add_entry(handle, variant, entry, {"k.cubin": f"FAKE\nk{fact} 8\n".encode()})

    runtime.set_resolver(handle, resolve)
    call = getattr(torch.ops.tileops, name).default

    def launched(*numbers: int) -> list[str]:
        before = len(log())
        for n in numbers:
            call(n, device="cuda:0")
        return [line["name"] for line in log()[before:] if line["call"] == "launch"]

    assert launched(32, 7, 48, 9) == ["k2", "k0", "k2", "k0"]
    # What may not be compiled now runs the code that assumes nothing but the width.
    runtime.set_strict(True)
    assert launched(1) == ["k0"]
    runtime.set_strict(False)
    assert launched(1, 1 << 40, 9, 32, 1) == ["k1", "k6", "k0", "k2", "k1"]
    assert asked == [32, 7, 1, 1 << 40]
    runtime.set_strict(True)
    with pytest.raises(CompileMissError, match="no kernel is loaded"):
        call((1 << 40) + 1, device="cuda:0")
    runtime.set_strict(False)
    assert launched((1 << 40) + 1) == ["k4"]
    fake.fake_capture(1)
    assert launched(64, 11) == ["k2", "k0"]
    fake.fake_capture(0)


def expect_miss(call: Any) -> None:
    with pytest.raises(CompileMissError, match=r"a CUDA graph is being captured; run the op once"):
        call()


if __name__ == "__main__":
    main(*sys.argv[1:])
