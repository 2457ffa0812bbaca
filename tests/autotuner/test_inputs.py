"""Messages with inputs: made elsewhere, they are what the caller has, or alike where they are large."""

from __future__ import annotations

import threading
from multiprocessing.connection import Pipe

import pytest
import torch

from tileops.autotuner import inputs as module
from tileops.autotuner.benches import status_of
from tileops.autotuner.inputs import clone, packed, span, unpacked
from tileops.child import Message, receive, send
from tileops.errors import ArgumentTypeError

CPU = torch.device("cpu")
WHOLE = torch.randn(30, 40)
VALUES = {
    "contiguous": WHOLE,
    "transposed": WHOLE.t(),
    "sliced": WHOLE[3:, 5:9],
    "unaligned": WHOLE.reshape(-1)[1:100],
    "expanded": torch.randn(5).expand(4, 5),
    "empty": WHOLE[:0],
    "zero_dimensional": torch.tensor(3.5),
    "integers": torch.arange(100),
    "bools": torch.rand(10) > 0.5,
    "half": torch.randn(17).half()[1:],
    "fp8": torch.randn(40).to(torch.float8_e4m3fn),
    "complex_strides": torch.randn(4, 5, 6).permute(2, 0, 1)[::2],
}


def carried(message: Message) -> Message:
    """The message as another process gets it."""
    here, there = Pipe()
    sender = threading.Thread(target=send, args=(here, message))  # a pipe holds a few rows at most
    sender.start()
    with here, there:
        found = receive(there)
        sender.join()
    return found


def through(*values: object) -> list:
    """The values as another process would make them."""
    return unpacked(carried(packed(list(values))), CPU)


@pytest.mark.parametrize("name", VALUES)
def test_a_tensor_arrives_as_it_is(name: str) -> None:
    want = VALUES[name]
    before, (got, after) = torch.arange(3), through(want, torch.arange(3))
    assert torch.equal(after, before)
    assert got.shape == want.shape
    assert got.stride() == want.stride()
    assert got.dtype == want.dtype
    assert torch.equal(raw(got), raw(want))
    assert want.numel() == 0 or got.data_ptr() % 16 == want.data_ptr() % 16
    assert got.data_ptr() != want.data_ptr() or want.numel() == 0


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def test_scalars_and_absent_tensors_arrive() -> None:
    assert through(3, 0.5, True, None) == [3, 0.5, True, None]
    with pytest.raises(ArgumentTypeError, match="argument 1: expected a tensor or a number"):
        packed([1, "x"])


def test_large_floats_are_made_anew_and_the_same_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REAL_BYTES_LIMIT", 1000)
    floats, numbers = torch.full((20, 25), 7.0).t(), torch.arange(1000)
    message = packed([floats, numbers])
    assert [len(row) for row in message["rows"]] == [1000 * 8]
    state = torch.get_rng_state()
    first, second = unpacked(message, CPU), unpacked(carried(message), CPU)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first[0], second[0])
    assert first[0].stride() == floats.stride()
    assert first[0].unique().numel() > 400
    assert torch.equal(first[1], numbers)
    (exact,) = unpacked(carried(packed([floats], exact=True)), CPU)
    assert torch.equal(exact, floats)


def test_rows_larger_than_a_pipe_arrive() -> None:
    large = torch.randint(0, 256, (5 << 20,), dtype=torch.uint8)
    assert torch.equal(through(large)[0], large)
    assert carried({"rows": []}) == {"rows": []}
    assert carried({"do": "it"}) == {"do": "it"}


def test_a_gradient_stays_behind() -> None:
    (got,) = through(torch.randn(3, requires_grad=True))
    assert not got.requires_grad
    assert not clone(torch.randn(3, requires_grad=True)).requires_grad


@pytest.mark.parametrize("name", VALUES)
def test_a_clone_has_the_strides_and_the_alignment(name: str) -> None:
    tensor = VALUES[name]
    made = clone(tensor)
    assert made.stride() == tensor.stride()
    assert torch.equal(raw(made), raw(tensor))
    assert tensor.numel() == 0 or made.data_ptr() % 16 == tensor.data_ptr() % 16
    assert tensor.numel() == 0 or made.data_ptr() != tensor.data_ptr()


def test_span() -> None:
    assert span((3, 4), (4, 1)) == 12
    assert span((3, 4), (1, 100)) == 303
    assert span((3, 0), (4, 1)) == 0
    assert span((), ()) == 1
    assert span((7, 5), (0, 1)) == 5


@pytest.mark.parametrize(
    ("text", "status", "is_fatal"),
    [
        ("CUDA error: an illegal memory access was encountered", "illegal_access", True),
        ("CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address", "illegal_access", True),
        ("CUDA error: unspecified launch failure", "illegal_access", True),
        ("CUDA error: device-side assert triggered", "error", True),
        ("CUDA error: an illegal instruction was encountered", "error", True),
        ("too many resources requested for launch", "error", False),
        ("argument 'A': expected float16, got float32", "error", False),
    ],
)
def test_errors_are_told_apart_by_their_words(text: str, status: str, is_fatal: bool) -> None:
    assert status_of(RuntimeError(text)) == (status, is_fatal)
