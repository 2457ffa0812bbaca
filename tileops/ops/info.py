"""Records of the operators: what tests, documents, FLOP counts, sharding and benchmarks need."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tileops.jit.impl import JITImpl
from tileops.ops import FAMILIES, NAMESPACE, batching, sharding

Shape = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Form:
    """One form of a call: the shapes and dtypes of its tensors, and how it is called.

    shapes:    of (rows, columns).
    arguments: the call's arguments, of the tensors; None for the tensors themselves.
    dtypes:    of each tensor; None, also for those after the last, for the dtype of the case.
               Tensors with a dtype of their own have no gradients.
    """

    name: str
    shapes: Callable[[int, int], tuple[Shape, ...]]
    arguments: Callable[..., tuple[Sequence[Any], Mapping[str, Any]]] | None = None
    dtypes: Sequence[torch.dtype | None] = ()

    def bind(self, tensors: Sequence[torch.Tensor]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of a call."""
        return (tensors, {}) if self.arguments is None else self.arguments(*tensors)

    def inputs(self, rows: int, columns: int, dtype: torch.dtype, device: str = "cpu") -> Tensors:
        """Random tensors of the form's shapes."""
        shapes = self.shapes(rows, columns)
        return tuple(
            random(shape, own or dtype).to(device)
            for shape, own in zip(shapes, self._own_dtypes(len(shapes)), strict=True)
        )

    def to(self, tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> Tensors:
        """The tensors in another dtype of the case."""
        return tuple(
            x.to(own or dtype)
            for x, own in zip(tensors, self._own_dtypes(len(tensors)), strict=True)
        )

    def leaves(self, tensors: Sequence[torch.Tensor]) -> Tensors:
        """The tensors, detached, so that those of the dtype of the case have gradients."""
        return tuple(
            x.detach().requires_grad_(own is None)
            for x, own in zip(tensors, self._own_dtypes(len(tensors)), strict=True)
        )

    def _own_dtypes(self, count: int) -> Sequence[torch.dtype | None]:
        return (*self.dtypes, *(None for _ in range(count - len(self.dtypes))))


@dataclass(frozen=True)
class BenchShape:
    """Rows and columns of a model, and the model's name."""

    rows: int
    columns: int
    model: str


@dataclass(frozen=True)
class OpInfo:
    """One operator.

    call:           the function of ``tileops.ops``.
    eager:          the same in torch operations; in float64 the reference.
    reference:      the reference if ``eager`` in float64 is not; it gets tensors of dtypes of their
                    own as they are.
    forms:          forms of calls that are tested; the first one is benchmarked.
    summary:        one line for the table of the documents.
    program:        the tile program of the forward pass; None if the call uses several.
    batched:        arguments of the program whose leading dimensions take ``torch.vmap``'s batch;
                    calls with other batched tensors run one after another.
    sharding:       rules of DTensor by the name of the op, without the namespace.
    flops:          formulas of matrix products by the name of the op; other work counts as 0.
    lowers:         autocast computes in its own dtype; otherwise it leaves the dtypes alone.
    rows:           the dimension of the first tensor whose elements are independent of each other.
    backward_reads: what the backward pass reads beside the gradients, of inputs and results; None
                    for an operator of inference, whose gradients are refused.
    bench:          shapes that the benchmarks take.
    """

    name: str
    call: Callable[..., Any]
    eager: Callable[..., Any]
    forms: tuple[Form, ...]
    summary: str
    program: JITImpl | None
    batched: tuple[int, ...] | None
    sharding: Mapping[str, sharding.Rule]
    backward_reads: Callable[[Tensors, Tensors], Sequence[torch.Tensor]] | None
    bench: tuple[BenchShape, ...]
    flops: Mapping[str, Callable[..., int]] = field(default_factory=dict)
    lowers: bool = False
    rows: int = -2
    reference: Callable[..., Any] | None = None

    @property
    def has_gradients(self) -> bool:
        """Whether there is a backward pass."""
        return self.backward_reads is not None

    def exact(self, form: Form, tensors: Sequence[torch.Tensor]) -> Any:
        """The results of the reference for tensors of ``form``, those of its case in float64."""
        args, options = form.bind(tensors)
        return (self.reference or self.eager)(*args, **options)

    def forward_bytes(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> int:
        """Bytes of a forward pass: each input read once, each output written once."""
        return size_of((*inputs, *outputs))

    def backward_bytes(
        self, inputs: Tensors, outputs: Tensors, gradients: Sequence[torch.Tensor]
    ) -> int:
        """Bytes of a backward pass: what it needs read once, each gradient written once."""
        if self.backward_reads is None:
            raise ValueError(f"{self.name} has no backward pass")
        return size_of((*outputs, *self.backward_reads(inputs, outputs))) + size_of(gradients)


def random(shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers, or integers of all bits, of ``dtype``."""
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float64).to(dtype)
    made = torch.randint(256, (*shape, dtype.itemsize), dtype=torch.uint8)
    return made.view(dtype).squeeze(-1)


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes of different tensors; one that is there twice counts once."""
    return sum({x.data_ptr(): x.numel() * x.element_size() for x in tensors}.values())


def register(infos: Sequence[OpInfo]) -> None:
    """Tell torch what the records say: batching rules, FLOP formulas, rules of DTensor."""
    for info in infos:
        if info.program is not None and info.batched is not None:
            info.program.register_vmap(batching.by_rows(info.program, info.batched))
        for name, rule in info.sharding.items():
            sharding.add(f"{NAMESPACE}::{name}", rule)
        for name, formula in info.flops.items():
            from torch.utils.flop_counter import register_flop_formula

            register_flop_formula(getattr(getattr(torch.ops, NAMESPACE), name))(formula)


def infos() -> tuple[OpInfo, ...]:
    """The records of all operators, by name; loads every family."""
    found = [
        info
        for family in FAMILIES
        for info in importlib.import_module(f"tileops.ops.{family}").INFOS
    ]
    return tuple(sorted(found, key=lambda info: info.name))


def of(name: str) -> OpInfo:
    """The record of the operator ``name``."""
    return next(info for info in infos() if info.name == name)
