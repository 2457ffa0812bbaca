"""Attention of models of ``transformers``: entries of its registries, and configs that name them.

An entry stands over another implementation, which keeps what ``ops.attention`` does not take: masks
of padded tokens, dropout, single queries. The mask of its registry is None where causality and a
window say everything.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tileops import ops
from tileops.errors import TileopsError
from tileops.ops import decompositions
from tileops.ops.attentions import WIDEST_HEAD
from tileops.patching import fingerprint
from tileops.patching.rotary import global_of
from tileops.patching.sites import Match, Skip

PREFIX = "tileops_over_"
REGISTRY = "ALL_ATTENTION_FUNCTIONS"
# What an entry can stand over; others are vendors' kernels with layouts of their own.
EAGER, SDPA = "eager", "sdpa"


class ConfigSite:
    """The config of some modules of one model, replaced by a copy that names another entry."""

    def __init__(self, path: str, holders: list[nn.Module], match: Match) -> None:
        self.path, self.match, self._holders = path, match, holders
        self._former: Any = holders[0].__dict__["config"]
        self._new = copy.copy(self._former)
        self._new._attn_implementation_internal = match.replacement
        self.is_applied = False

    def apply(self) -> None:
        """Put the copy in place."""
        for module in self._holders:
            module.__dict__["config"] = self._new
        self.is_applied = True

    def undo(self) -> None:
        """Put the config back; TileopsError if somebody replaced it meanwhile."""
        if not self.is_applied:
            return
        if any(module.__dict__.get("config") is not self._new for module in self._holders):
            raise TileopsError(
                f"patch: undo: {self.path or 'the model'}: config was replaced after patch; "
                "expected the one of tileops. Undo the later change first"
            )
        for module in self._holders:
            module.__dict__["config"] = self._former
        self.is_applied = False


@dataclass(frozen=True)
class Found:
    """The attention modules of one config: what becomes of them."""

    path: str
    kind: str
    result: Match | Skip
    is_patched: bool  # before
    holders: list[nn.Module]


def find(model: nn.Module, *, is_asked_for: bool) -> Iterator[Found]:
    """The attention modules of a model by their config, each with the path of the first one."""
    groups: dict[int, list[tuple[str, nn.Module]]] = {}
    for path, module in model.named_modules():
        if _is_attention(module):
            groups.setdefault(id(module.config), []).append((path, module))
    for members in groups.values():
        path, first = members[0]
        config: Any = first.config
        name = config._attn_implementation
        holders = [m for m in model.modules() if m.__dict__.get("config") is config]
        if isinstance(name, str) and name.startswith(PREFIX):
            own = Match("attention", f"over {name.removeprefix(PREFIX)}", _no_call, 1.0)
            yield Found(path, type(first).__name__, own, True, holders)
            continue
        result = _decided(name, [m for _, m in members], is_asked_for)
        yield Found(path, type(first).__name__, result, False, holders)


def _no_call(*given: Any) -> Any:
    raise TileopsError("patch: a match of a former patch is not called")


def _is_attention(module: nn.Module) -> bool:
    held = all(hasattr(module, name) for name in ("config", "scaling", "num_key_value_groups"))
    return held and global_of(type(module).forward, REGISTRY) is not None


def _decided(name: object, modules: list[nn.Module], is_asked_for: bool) -> Match | Skip:
    if name not in (EAGER, SDPA):
        return Skip("attention", f"its implementation {name!r} is kept")
    device = fingerprint.device_of(modules[0])
    if not is_asked_for and (name == SDPA or device.type == "cpu"):
        where = "" if device.type != "cpu" else " on the CPU"
        return Skip("attention", f"torch's kernels are kept: ours are not measured faster{where}")
    for module in modules:
        reason = _difference(module, device)
        if reason is not None:
            return Skip("attention", reason)
    return Match("attention", f"over {name}", register(str(name)), 1.0, "config")


def _difference(module: Any, device: torch.device) -> str | None:
    """Why a module's own arithmetic is not that of ``ops.attention``; None if it is."""
    width, groups = getattr(module, "head_dim", 0), module.num_key_value_groups
    if not 1 <= width <= WIDEST_HEAD:
        return f"its heads have {width} elements"
    heads = module.config.num_attention_heads
    q, k, v = (
        fingerprint.random(2, n, 12, width, dtype=torch.float64, device=device, seed=seed)
        for seed, n in enumerate((heads, heads // groups, heads // groups))
    )
    softcap = getattr(module, "attn_logit_softcapping", None)
    sinks = getattr(module, "sinks", None)
    try:
        with torch.no_grad():
            mask = _explicit(q, k, 5)
            own = _original(EAGER, module)(
                module,
                q,
                k,
                v,
                mask,
                dropout=0.0,
                scaling=module.scaling,
                s_aux=sinks,
                softcap=softcap,
            )[0]
            ours = decompositions.attention(
                q, k, v, is_causal=True, scale=module.scaling, window_size=(4, -1), sinks=sinks,
                softcap=softcap,
            )  # fmt: skip
        apart = float((own.transpose(1, 2) - ours).abs().max())
    except Exception as error:  # whatever a foreign function raises is a reason to leave it
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    # Models take their softmax in float32.
    return None if apart < 1e-5 * float(v.abs().max()) else f"its results differ by {apart:.1e}"


def _original(name: str, module: nn.Module) -> Callable[..., Any]:
    """The function of an implementation; the eager one is in the module's own file."""
    if name == EAGER:
        own: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward
        return own
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    found: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[name]
    return found


def _explicit(query: torch.Tensor, key: torch.Tensor, window: int | None) -> torch.Tensor:
    """What is added to scores for a causal mask, perhaps with a window of so many keys."""
    behind = torch.arange(query.shape[2], device=query.device)[:, None]
    behind = behind - torch.arange(key.shape[2], device=query.device)
    hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
    zeros = torch.zeros(hidden.shape, dtype=query.dtype, device=query.device)
    return zeros.masked_fill(hidden, torch.finfo(query.dtype).min)[None, None]


# -- entries of the registries -----------------------------------------------------------------
def register(original: str) -> str:
    """The name of the entries over ``original``, in the registries of attention and of masks."""
    from transformers import AttentionInterface, AttentionMaskInterface

    name = PREFIX + original
    AttentionInterface.register(name, _attention_over(original))
    AttentionMaskInterface.register(name, _mask_over(original))
    return name


def _attention_over(original: str) -> Callable[..., Any]:
    def attention(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        attention_mask: torch.Tensor | None, dropout: float = 0.0, scaling: float | None = None,
        is_causal: bool | None = None, **given: Any,
    ) -> Any:  # fmt: skip
        causal = module.is_causal if is_causal is None else is_causal
        window = given.get("sliding_window")
        is_whole = attention_mask is None and causal and 1 < query.shape[2] == key.shape[2]
        rare = ("position_bias", "output_attentions", "head_mask")
        if is_whole and dropout == 0.0 and not any(given.get(name) is not None for name in rare):
            out = ops.attention(
                query, key, value, is_causal=True, scale=scaling, softcap=given.get("softcap"),
                window_size=(-1 if window is None else window - 1, -1), sinks=given.get("s_aux"),
            )  # fmt: skip
            return out.transpose(1, 2), None  # type: ignore[union-attr]
        if is_whole and (original == EAGER or window is not None):
            attention_mask = _explicit(query, key, window)
        if original == SDPA:
            given["is_causal"] = is_causal
        return _original(original, module)(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **given
        )

    return attention


def _mask_over(original: str) -> Callable[..., Any]:
    def mask(
        q_length: Any, kv_length: Any, q_offset: Any = 0, kv_offset: Any = 0,
        mask_function: Any = None, attention_mask: torch.Tensor | None = None,
        local_size: int | None = None, allow_is_causal_skip: bool = True, **given: Any,
    ) -> Any:  # fmt: skip
        if (
            allow_is_causal_skip
            and 1 < q_length == kv_length
            and q_offset == kv_offset
            and _is_of_all_tokens(attention_mask)
            and _is_causal(mask_function, local_size)
        ):
            return None
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

        given.update(
            q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=mask_function, attention_mask=attention_mask, local_size=local_size,
            # A single query may do without a mask, and so may what torch takes for causal.
            allow_is_causal_skip=allow_is_causal_skip,
        )  # fmt: skip
        return ALL_MASK_ATTENTION_FUNCTIONS[original](**given)

    return mask


def _is_of_all_tokens(attention_mask: torch.Tensor | None) -> bool:
    """Whether no token is padding. In a graph the numbers are not known."""
    if attention_mask is None:
        return True
    return not torch.compiler.is_compiling() and bool(attention_mask.all())


def _is_causal(mask_function: Any, window: int | None) -> bool:
    """Whether a mask function hides later keys, and keys ``window`` and more behind, alone.

    In a graph, where numbers are not known, only the function of ``transformers`` itself.
    """
    from transformers.masking_utils import causal_mask_function

    if window is None and mask_function in (None, causal_mask_function):
        return True
    if window is None or mask_function is None or torch.compiler.is_compiling():
        return False
    # A mask of chunks hides key 1 from the query at ``window``.
    pairs = [(1, 0, window > 1), (0, 1, False), (window, 1, True), (window, 0, False)]
    zero = torch.tensor(0)
    return all(
        bool(mask_function(zero, zero, torch.tensor(q), torch.tensor(k))) == sees
        for q, k, sees in pairs
    )
