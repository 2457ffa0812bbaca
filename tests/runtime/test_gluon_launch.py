"""A compiled Gluon launch, from its record through the C++ reader to a driver that records calls."""

from __future__ import annotations

import struct
from typing import Any

from tests.compile.test_gluon import built, parameters
from tests.kit import descriptions as d
from tileops import runtime

A, B, C = 0x7F0000001000, 0x7F0000002000, 0x7F0000003000
ROWS, COLUMNS, DEPTH = 1000, 520, 264
FLOAT16, SWIZZLE_128 = 6, 3  # CUtensorMapDataType, CUtensorMapSwizzle


def test_the_record_of_a_gluon_launch_is_launched(fake: Any) -> None:
    artifact, record = built()
    sizes = [size for size, _ in parameters(artifact.files["launch0.ptx"].decode())]
    image = f"FAKE\n{artifact.launches[0].entry} {' '.join(map(str, sizes))}\n".encode()
    names = ("a", "b", "c")
    schema = f"({', '.join(f'Tensor {name}' for name in names)}) -> ()"
    handle = runtime.create_op(d.op(d.fresh_name("gluon"), schema, [d.arg(name) for name in names]))
    values = {"M": ROWS, "N": COLUMNS, "K": DEPTH}
    order = record["sizes"]
    shapes = (("M", "K"), ("K", "N"), ("M", "N"))
    bound: set[str] = set()
    tensors = []
    for number, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        dims = [d.eq(order.index(n)) if n in bound else d.bind(order.index(n)) for n in shape]
        tensors.append(d.tensor(number, name, dims, "float16"))
        bound.update(shape)
    variant = d.variant(
        tensors=tensors,
        sizes=[d.size(name) for name in order],
        host=d.host([f"size:{n}" for n in range(len(order))]),
    )
    number = runtime.add_variant(handle, variant)
    entry = d.entry(
        device="cuda",
        capability=90,
        host=record["host"],
        tensor_order=[{"arg": n} for n in range(3)],
        launches=record["launches"],
    )
    runtime.add_entry(handle, number, entry, {"launch0.cubin": image})
    runtime.run_raw(handle, number, sizes=[values[name] for name in order], tensors=[A, B, C])

    # Dimensions are counted from the innermost; A's box is the tile, the others' a quarter of it.
    encoded = [
        (line["address"], line["extents"], line["strides"], line["box"], line["type"], line["swizzle"])
        for line in fake.log("encode")
    ]  # fmt: skip
    assert encoded == [
        (A, [DEPTH, ROWS], [2 * DEPTH], [64, 128], FLOAT16, SWIZZLE_128),
        (B, [COLUMNS, DEPTH], [2 * COLUMNS], [64, 64], FLOAT16, SWIZZLE_128),
        (C, [COLUMNS, ROWS], [2 * COLUMNS], [64, 128], FLOAT16, SWIZZLE_128),
    ]
    (launch,) = fake.log("launch")
    assert launch["grid"] == [8 * 3, 1, 1]
    assert launch["block"] == [384, 1, 1]
    assert launch["shared"] == artifact.launches[0].shared_bytes
    given = [bytes.fromhex(text) for text in launch["params"]]
    assert [len(value) for value in given] == sizes
    assert [given[n][:8] for n in (0, 5, 10)] == [struct.pack("<Q", at) for at in (A, B, C)]
    unread = [value for n, value in enumerate(given[:15]) if n % 5]
    assert unread == [bytes(4), bytes(4), bytes(8), bytes(8)] * 3
    assert given[15:] == [struct.pack("<i", DEPTH), struct.pack("<i", 3), bytes(8), bytes(8)]
