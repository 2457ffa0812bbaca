"""The fake of an op: the checks and output shapes of a call, without data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.op import compile_cache
from tileops.op.host_program import SlotValue, at_least_one, holds, is_known_empty, is_stepped_over
from tileops.op.spec import OpSpec, bound_dtypes
from tileops.op.variant import Output, Rule, TensorRule, Variant

if TYPE_CHECKING:
    import torch


def fake_of(
    spec: OpSpec, variant: Callable[[tuple[object, ...]], Variant], rules: Callable[[], str] = str
) -> Callable[..., object]:
    """The fake of an op; ``rules``: a digest of what else than its variants traced graphs take."""
    statics, optional = spec.statics(), spec.optional_tensors()

    def fake(*args: object, **kwargs: object) -> object:
        values = spec.named(args, kwargs)
        static = [values.get(a.name) for a in statics]
        static += [values.get(a.name) is not None for a in optional]
        chosen = variant((*static, *bound_dtypes(spec, values)))
        compile_cache.note(spec, chosen, rules())
        return _Call(spec, chosen, values).outputs()

    return fake


def sizes_given(spec: OpSpec, variant: Variant, values: Mapping[str, object]) -> dict[str, Any]:
    """The sizes by name that tensors among ``values`` give; errors as a call, but for devices."""
    import torch

    call = _Call(spec, variant, values)
    given = [
        (rule, tensor)
        for rule in variant.tensors
        if isinstance(tensor := values.get(rule.name), torch.Tensor) and not rule.raw
    ]
    call.bind(given)
    if len(call.sizes) == len(variant.sizes) and not variant.scalars:
        call.compare(given)
    return {variant.sizes[number].name: size for number, size in call.sizes.items()}


def bound(
    spec: OpSpec, variant: Variant, values: Mapping[str, object]
) -> tuple[list[SlotValue], list[torch.Tensor]]:
    """The sizes of a call, and the tensors that it allocates, empty; it is refused as by the op."""
    call = _Call(spec, variant, values)
    made = call.allocated()
    return [call.sizes[n] for n in range(len(variant.sizes))], made


class _View(NamedTuple):
    """Shape and strides of a tensor with its leading dimensions, which ``...`` takes, as one."""

    shape: tuple[SlotValue, ...]
    strides: tuple[SlotValue, ...]


class _Call:
    """One call of the fake: the arguments, bound to the rules of a variant."""

    def __init__(self, spec: OpSpec, variant: Variant, values: Mapping[str, Any]) -> None:
        self.spec = spec
        self.variant = variant
        self.values = values
        self.sizes: dict[int, SlotValue] = {}
        self.leading: tuple[SlotValue, ...] = ()  # the dimensions that all tensors with ... share
        self._first: tuple[str, tuple[SlotValue, ...]] | None = None  # which had them: name, shape
        self.views: dict[int, _View] = {}  # by argument

    def outputs(self) -> object:
        """The tensors that the real op would return, empty."""
        made = self.allocated()
        returned = [made[n] for n in self.spec.returns]
        if not returned:
            return None
        return returned[0] if len(returned) == 1 else tuple(returned)

    def allocated(self) -> list[torch.Tensor]:
        """The tensors that the real op would allocate, empty."""
        import torch

        tensors = [(rule, self.values[rule.name]) for rule in self.variant.tensors]
        for rule, tensor in tensors:
            if tensor is None:
                raise ArgumentTypeError(f"{self._where(rule.name)}: expected a tensor, got None")
        # The CPU unless the call says otherwise, as in the runtime and torch's own factories.
        asked = self.values.get("device") or "cpu"
        device = tensors[0][1].device if tensors else torch.device(asked)
        for rule, tensor in tensors:
            if tensor.device != device:
                raise ArgumentError(
                    f"{self.spec.title}: expected all tensors on one device, got "
                    f"'{tensors[0][0].name}' on {device} and '{rule.name}' on {tensor.device}"
                )
        shaped = [(rule, tensor) for rule, tensor in tensors if not rule.raw]
        self.bind(shaped)
        slots = self.compare(shaped)
        return [
            torch.empty(
                self._stored(output, slots), dtype=getattr(torch, output.dtype), device=device
            )
            for output in self.variant.outputs
        ]

    def bind(self, tensors: list[tuple[TensorRule, torch.Tensor]]) -> None:
        """Take the sizes of ``tensors``; raises for a dtype, rank or size that does not fit."""
        for rule, tensor in tensors:
            self._check_kind(rule, tensor)
            self.views[rule.arg] = self._view(rule, tensor)
            for place, check, value in self._checks(rule, tensor):
                if check.kind == "bind":
                    self._set(rule, place, check.number, value)
                elif check.kind == "solve":
                    self._solve(rule, place, check, value)
        self._bind_free_strides(tensors)

    def compare(self, tensors: list[tuple[TensorRule, torch.Tensor]]) -> list[SlotValue]:
        """The values of the host program's slots; raises for extents that differ from them."""
        inputs = {f"size:{n}": self.sizes[n] for n in range(len(self.variant.sizes))}
        scalars = enumerate(self.variant.scalars)
        inputs.update((f"scalar:{n}", self.values[rule.name]) for n, rule in scalars)
        slots = self.variant.host.evaluate(inputs)
        for rule, tensor in tensors:
            for place, check, value in self._checks(rule, tensor):
                if check.kind == "eq" and not holds(value == slots[check.number]):
                    raise ArgumentError(
                        f"{self._where(rule.name)}: expected {place} to be {slots[check.number]}, "
                        f"got {value} in shape {tuple(tensor.shape)}"
                    )
        return slots

    def _stored(self, output: Output, slots: list[SlotValue]) -> list[SlotValue]:
        """The shape of the torch tensor of ``output``, which holds ``pack`` elements in one."""
        shape, pack = [slots[n] for n in output.shape], output.pack
        if output.leading:
            shape[:1] = self.leading
        for extent in shape:
            if isinstance(extent, int) and extent < 0:
                raise ArgumentError(
                    f"{self.spec.title}: an output would have an impossible extent of {extent}"
                )
        if pack == 1:
            return shape
        if shape[-1] % pack != 0:
            raise ArgumentError(
                f"{self.spec.title}: an output of {pack} elements a byte needs a last dimension "
                f"divisible by {pack}, got {shape[-1]}"
            )
        return [*shape[:-1], shape[-1] // pack]

    def _where(self, name: str) -> str:
        return f"{self.spec.title}: argument '{name}'"

    def _check_kind(self, rule: TensorRule, tensor: torch.Tensor) -> None:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in rule.dtypes:
            raise ArgumentTypeError(
                f"{self._where(rule.name)}: expected dtype {' or '.join(rule.dtypes)}, got {dtype}"
            )
        least = len(rule.shape) - rule.leading
        if tensor.dim() != least and not (rule.leading and tensor.dim() > least):
            raise ArgumentError(
                f"{self._where(rule.name)}: expected {least} dimensions"
                f"{' or more' if rule.leading else ''}, got {tensor.dim()} with shape "
                f"{tuple(tensor.shape)}"
            )
        if rule.strides is None and not self.spec.copies_inputs and not _is_contiguous(tensor):
            if rule.leading:
                self._refuse_layout(rule, tensor)
            raise ArgumentError(
                f"{self._where(rule.name)}: expected a contiguous tensor, got strides "
                f"{tuple(tensor.stride())} for shape {tuple(tensor.shape)}; pass "
                f"{rule.name}.contiguous()"
            )

    def _view(self, rule: TensorRule, tensor: torch.Tensor) -> _View:
        """``tensor`` in the dimensions of its rule; it is copied where they have no one stride.

        ArgumentError for leading dimensions that differ from an earlier tensor's, and for those
        without one common stride if the rule has strides and the call makes no copies.
        """
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        if not rule.leading:
            return _View(shape, strides)
        count = _leading_count(rule, shape)
        self._agree(rule.name, shape, shape[:count])
        if rule.strides is not None and not self.spec.copies_inputs:
            self._refuse_layout(rule, tensor)
        step = None if is_known_empty(shape) else one_stride(shape[:count], strides[:count])
        if step is None:  # the call copies it, or no stride matters
            strides = _row_major(shape)
            step = strides[count - 1] if count > 0 else 1
        return _View((math.prod(shape[:count]), *shape[count:]), (step, *strides[count:]))

    def _refuse_layout(self, rule: TensorRule, tensor: torch.Tensor) -> None:
        """ArgumentError for leading dimensions that cannot be viewed as one."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        count = _leading_count(rule, shape)
        if is_known_empty(shape) or one_stride(shape[:count], strides[:count]) is not None:
            return
        raise ArgumentError(
            f"{self._where(rule.name)}: expected leading dimensions that can be viewed as one "
            f"dimension with one stride, got strides {strides} for shape {shape}; pass "
            f'{rule.name}.contiguous(), or declare @tileops.jit(contiguous="copy")'
        )

    def _agree(self, name: str, shape: tuple[SlotValue, ...], dims: tuple[SlotValue, ...]) -> None:
        if self._first is None:
            self._first, self.leading = (name, shape), dims
        elif len(dims) != len(self.leading) or not all(
            a is b or holds(a == b) for a, b in zip(dims, self.leading, strict=True)
        ):
            first, other = self._first
            raise ArgumentError(
                f"{self._where(name)}: expected the leading dimensions {self.leading} of "
                f"'{first}', whose shape is {other}, got {dims} in shape {shape}"
            )

    def _checks(
        self, rule: TensorRule, tensor: torch.Tensor
    ) -> Iterator[tuple[str, Rule, SlotValue]]:
        """Each extent and each stride that matters: its place in words, its rule, its value."""
        view = self.views[rule.arg]
        for d, (check, value) in enumerate(zip(rule.shape, rule.extents(view.shape), strict=True)):
            yield _place_of(rule, tensor, "dimension", d), check, value
        if rule.strides is None or is_known_empty(view.shape):
            return
        for d, check in enumerate(rule.strides):
            if is_stepped_over(view.shape[d]):
                yield _place_of(rule, tensor, "stride", d), check, rule.stride(view.strides, d)

    def _set(self, rule: TensorRule, place: str, number: int, value: SlotValue) -> None:
        known = self.sizes.setdefault(number, value)
        if known is not value and not holds(known == value):
            raise ArgumentError(
                f"{self._where(rule.name)}: expected {place} to be {known} "
                f"({self.variant.sizes[number].name}), got {value}"
            )

    def _solve(self, rule: TensorRule, place: str, check: Rule, value: SlotValue) -> None:
        scaled = value - check.add
        if not (holds(scaled >= 0) and holds(scaled % check.mul == 0)):
            raise ArgumentError(
                f"{self._where(rule.name)}: expected {place} to be "
                f"{self.variant.sizes[check.number].name} * {check.mul} + {check.add}, got {value}"
            )
        self._set(rule, place, check.number, scaled // check.mul)

    def _bind_free_strides(self, tensors: list[tuple[TensorRule, torch.Tensor]]) -> None:
        for rule, _ in tensors:
            expected: SlotValue = 1
            for d in reversed(range(len(rule.strides or ()))):
                check = rule.strides[d] if rule.strides else None
                if check is not None and check.kind == "bind":
                    self.sizes.setdefault(check.number, expected)
                extents = rule.extents(self.views[rule.arg].shape)
                expected = expected * at_least_one(extents[d])


def _leading_count(rule: TensorRule, shape: Sequence[Any]) -> int:
    """The number of leading dimensions of a tensor of this shape."""
    return len(shape) - len(rule.shape) + 1


def one_stride(shape: Sequence[Any], strides: Sequence[Any]) -> SlotValue | None:
    """The stride of dimensions viewed as one, 1 for one element; None if there is none."""
    step: SlotValue | None = None
    expected: SlotValue = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if not is_stepped_over(extent):
            continue
        if step is None:
            step = expected = stride
        elif not _same(stride, expected):
            return None
        expected = expected * extent
    return 1 if step is None else step


def _same(a: SlotValue, b: SlotValue) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(a == b)


def _row_major(shape: Sequence[Any]) -> tuple[SlotValue, ...]:
    strides: list[SlotValue] = []
    step: SlotValue = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * at_least_one(extent)
    return tuple(strides)


def _place_of(rule: TensorRule, tensor: torch.Tensor, kind: str, dim: int) -> str:
    """A dimension of the rule, or its stride, in words: by its place in the tensor."""
    if not rule.leading:
        return f"{kind} {dim}"
    if dim == 0:
        what = "product" if kind == "dimension" else "stride"
        return f"the {what} of the leading dimensions"
    return f"{kind} {dim + tensor.dim() - len(rule.shape)}"


def _is_contiguous(tensor: torch.Tensor) -> bool:
    if all(isinstance(n, int) for n in tensor.shape):
        return tensor.is_contiguous()
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    try:
        return tensor.is_contiguous()
    except GuardOnDataDependentSymNode:
        return False  # not for every data
