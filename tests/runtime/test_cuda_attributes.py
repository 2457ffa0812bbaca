"""Tensor maps, clusters and dependent launches against a driver that records its calls."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.kit import descriptions as d
from tests.runtime.test_cuda_launch import A, B, make, params_of, run
from tileops.errors import ArgumentError, DriverError, InternalError


def test_tensor_map_is_encoded_for_the_call_and_passed_by_value(fake: Any) -> None:
    spec = {"kind": "tensormap", "index": 1, "box": [64, 32], "shape": [0, 1], "strides": [1, 2], "swizzle": 3,
            "elem_type": 6}  # fmt: skip
    op = make([d.p_tensor(0), spec, d.p_slot(0)], [8, 128, 4], code=[["const", 96], ["const", 1]])
    run(*op, n=500)
    (encoded,) = fake.log("encode")
    assert encoded == {
        "call": "encode", "type": 6, "rank": 2, "address": B, "interleave": 0, "swizzle": 3, "promotion": 2, "fill": 0,
        "extents": [96, 500], "strides": [96 * 2], "box": [32, 64], "element_strides": [1, 1],
    }  # fmt: skip
    got = params_of(fake)
    assert got[1][:8] + got[1][16:] == struct.pack("<Q", B) + b"\xab" * 112
    assert got[0] == struct.pack("<Q", A)


SMALL, LARGE = (
    0xABABABAB_AB8BABAB,
    0xABABABAB_ABABABAB,
)  # the map's second word, without bit 21 and with it


@pytest.mark.parametrize(
    ("version", "rows", "columns", "pitch", "word"),
    [
        (12080, 64, 64, 64, SMALL),
        (13010, 64, 64, 64, SMALL),
        (13020, 64, 64, 64, LARGE),  # this driver needs no correction
        (13010, 1023, 64, 64, SMALL),
        (13010, 1024, 64, 64, LARGE),  # 128 KiB
        # Bytes are counted from the first element to the last.
        (13010, 1024, 63, 64, SMALL),
        (13010, 2, 64, 2**16 - 72, SMALL),
        (13010, 2, 64, 2**16 - 64, LARGE),
        (13010, 2**31 - 1, 64, 2**38, LARGE),  # more bytes than 64 bits hold
    ],
)
def test_the_map_of_a_small_tensor_is_corrected_for_older_drivers(
    fake: Any, version: int, rows: int, columns: int, pitch: int, word: int
) -> None:
    fake.library.fake_version(version)
    spec = {"kind": "tensormap", "index": 1, "box": [64, 32], "shape": [1, 2], "strides": [3, 4], "swizzle": 3,
            "elem_type": 6}  # fmt: skip
    constants = [["const", value] for value in (rows, columns, pitch, 1)]
    op = make([spec], [128], code=constants)
    run(*op)
    assert struct.unpack_from("<QQQ", params_of(fake)[0]) == (B, word, LARGE)


def test_a_driver_that_does_not_tell_its_version(fake: Any) -> None:
    fake.fail("cuDriverGetVersion", 1)
    with pytest.raises(
        DriverError, match=r"cuDriverGetVersion: CUDA_ERROR_INVALID_VALUE \(1\): the fake"
    ):
        run(*make([d.p_tensor(0)], [8]))


CLUSTER, DEPENDENT = "4", "6"  # CUlaunchAttributeID


def test_a_plain_launch_has_no_attributes(fake: Any) -> None:
    run(*make([d.p_tensor(0)], [8], cluster=1, dependent=False))
    assert fake.log("launch")[0]["attributes"] == {}


@pytest.mark.parametrize(
    ("fields", "attributes", "blocks"),
    [
        ({"cluster": 2}, {CLUSTER: [2, 1, 1]}, 8),
        ({"dependent": True}, {DEPENDENT: 1}, 4),
        ({"cluster": 8, "dependent": True}, {CLUSTER: [8, 1, 1], DEPENDENT: 1}, 32),
    ],
)
def test_clusters_and_dependent_launches(
    fake: Any, fields: d.Json, attributes: dict[str, Any], blocks: int
) -> None:
    run(*make([d.p_tensor(0)], [8], **fields), n=4)
    (line,) = fake.log("launch")
    assert line["attributes"] == attributes
    assert line["grid"] == [blocks, 1, 1]


def test_the_blocks_of_clusters_count_for_the_limit_of_a_grid(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8], cluster=2)
    run(*op, n=2**30 - 1)
    assert fake.log("launch")[0]["grid"] == [2**31 - 2, 1, 1]
    for size in (2**30, 2**62):
        with pytest.raises(ArgumentError, match="blocks is over the limit of 2147483647"):
            run(*op, n=size)


def test_each_block_of_a_cluster_has_scratch_of_its_own(fake: Any) -> None:
    params = [{"kind": "global_scratch"}]
    run(*make(params, [8], scratch_bytes=2**40), n=2**22, workspace=0x10000)
    assert params_of(fake) == [struct.pack("<Q", 0x10000)]
    op = make(params, [8], scratch_bytes=2**40, cluster=2)  # 2**63 bytes
    with pytest.raises(ArgumentError, match="negative or impossible size"):
        run(*op, n=2**22, workspace=0x10000)


@pytest.mark.parametrize("cluster", [0, 9])
def test_a_cluster_that_not_every_device_has_is_refused(fake: Any, cluster: int) -> None:
    with pytest.raises(InternalError, match=r"launches\.cluster"):
        make([d.p_tensor(0)], [8], cluster=cluster)


def test_a_refused_tensor_map_is_a_driver_error(fake: Any) -> None:
    spec = {
        "kind": "tensormap",
        "index": 0,
        "box": [64],
        "shape": [0],
        "strides": [0],
        "swizzle": 0,
        "elem_type": 6,
    }
    op = make([spec], [128])
    fake.fail("cuTensorMapEncodeTiled", 1)
    with pytest.raises(
        DriverError,
        match=r"tensor 0: cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE \(1\): the fake",
    ):
        run(*op)
