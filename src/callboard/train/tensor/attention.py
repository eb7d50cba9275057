"""Attention with some heads on each shard."""

import math
import re
from collections.abc import Callable
from typing import Any

from callboard.train.batches import shares
from callboard.train.tensor.cuts import Cut, in_groups
from callboard.train.tensor.cutting import Cutting
from callboard.train.tensor.flow import Flow
from callboard.train.tensor.plan import HEADS

__all__ = ["cut_attention"]

KEY_HEADS = "num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_kv_head", "kv_heads"
FUSED = re.compile(r"w?qkv(_proj)?|c_attn|in_proj|query_key_value|to_qkv")
QUERY = re.compile(r"w?_?q|query|q_proj|q_lin|to_q")
KEY = re.compile(r"w?_?[kv]|key|value|[kv]_proj|[kv]_lin|to_[kv]")
OUT = re.compile(r"w?_?o|out|proj|c_proj|o_proj|out_proj|to_out|dense|out_lin|output")

CutRow = Callable[[str, Any, Flow, Cutting, Cut], None]


def cut_attention(name: str, module: Any, flow: Flow, cutting: Cutting, cut_row: CutRow) -> None:
    """Give each shard whole heads.

    Raises:
        TypeError, ValueError: It is no attention that can be cut.
    """
    import torch

    if isinstance(module, torch.nn.MultiheadAttention):
        _cut_multihead(name, module, flow, cutting, cut_row)
    else:
        _cut_other(name, module, flow, cutting, cut_row)


def _cut_other(name: str, module: Any, flow: Flow, cutting: Cutting, cut_row: CutRow) -> None:
    """An attention that is written out: its numbers of heads become those of the shard."""
    import torch

    attribute = next((key for key in HEADS if isinstance(getattr(module, key, None), int)), None)
    if attribute is None:
        raise TypeError(f"plan: {name!r} has no number of heads; 'heads' looks for one of {', '.join(HEADS)}")
    heads = getattr(module, attribute)
    of_keys = next((key for key in KEY_HEADS if isinstance(getattr(module, key, None), int)), None)
    groups = heads if of_keys is None else getattr(module, of_keys)
    share = shares(groups, cutting.size)[cutting.rank]
    count = share.stop - share.start
    wide = 0
    for key, linear in module.named_children():
        if not isinstance(linear, torch.nn.Linear):
            continue
        full = f"{name}.{key}"
        if OUT.fullmatch(key):
            wide = linear.in_features
            cut_row(full, linear, flow, cutting, in_groups(1, groups, linear.in_features // groups, cutting.size))
            continue
        repeats = 3 if FUSED.fullmatch(key) else 1
        if not (repeats == 3 or QUERY.fullmatch(key) or KEY.fullmatch(key)):
            raise ValueError(f"plan: what {full!r} is for cannot be told by its name; plan the layers one by one")
        if repeats == 3 and groups != heads:
            raise ValueError(f"plan: {full!r} has queries, keys and values in one, with fewer heads of keys")
        cut = in_groups(0, groups, linear.out_features // (groups * repeats), cutting.size, repeats)
        cutting.cut(f"{full}.weight", cut)
        if linear.bias is not None:
            cutting.cut(f"{full}.bias", cut)
    if not wide:
        raise ValueError(f"plan: {name!r} has no projection of its output with a name as out_proj or o_proj")
    setattr(module, attribute, count * (heads // groups))
    if of_keys is not None:
        setattr(module, of_keys, count)
    before = module.forward

    def forward(x: Any, *args: Any, **kwargs: Any) -> Any:
        whole = flow.whole(x, name)
        flow.open_features(name, wide)
        return before(whole, *args, **kwargs)

    module.forward = forward


def _cut_multihead(name: str, module: Any, flow: Flow, cutting: Cutting, cut_row: CutRow) -> None:
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise ValueError(f"plan: {name!r} has kdim, vdim, add_bias_kv or add_zero_attn, with which it cannot be cut")
    width = module.head_dim
    share = shares(module.num_heads, cutting.size)[cutting.rank]
    cut = in_groups(0, module.num_heads, width, cutting.size, repeats=3)
    cutting.cut(f"{name}.in_proj_weight", cut)
    if module.in_proj_bias is not None:
        cutting.cut(f"{name}.in_proj_bias", cut)
    cut_row(f"{name}.out_proj", module.out_proj, flow, cutting, in_groups(1, module.num_heads, width, cutting.size))

    def forward(
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        if need_weights and not average_attn_weights:
            raise ValueError(f"{name!r} has some heads on each device; use average_attn_weights=True")
        given = [x if module.batch_first else x.transpose(0, 1) for x in (query, key, value)]
        if query is key is value:
            given = [given[0]] * 3
        given = [flow.whole(x, name) for x in given]
        flow.open_features(f"{name}.in_proj", module.out_proj.in_features)
        heads = share.stop - share.start
        projected = _projections(module, given, heads)
        mask = _mask(attn_mask, key_padding_mask, share, given[0].shape[0], given[0].dtype)
        dropout = module.dropout if module.training else 0.0
        mixed, weights = _attention(projected, mask, dropout, is_causal and mask is None, need_weights)
        y = module.out_proj(mixed.transpose(1, 2).flatten(2))
        averaged = flow.sum(weights.sum(1)) / module.num_heads if need_weights else None
        return y if module.batch_first else y.transpose(0, 1), averaged

    module.forward = forward


def _projections(module: Any, given: list[Any], heads: int) -> list[Any]:
    from torch.nn import functional

    weights = module.in_proj_weight.chunk(3)
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return [
        functional.linear(x, weight, bias).view(*x.shape[:2], heads, -1).transpose(1, 2)
        for x, weight, bias in zip(given, weights, biases, strict=True)
    ]


def _mask(attn_mask: Any, padding: Any, share: slice, rows: int, dtype: Any) -> Any:
    """What is added to the scores of this shard's heads."""
    import torch

    total = None
    for mask, is_padding in ((attn_mask, False), (padding, True)):
        if mask is None:
            continue
        added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        added = added.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else added + mask
        if is_padding:
            added = added[:, None, None, :]
        elif mask.ndim == 3:  # for each row and head
            added = added.reshape(rows, -1, *added.shape[1:])[:, share]
        total = added if total is None else total + added
    return total


def _attention(qkv: list[Any], mask: Any, dropout: float, is_causal: bool, need_weights: bool) -> tuple[Any, Any]:
    from torch.nn import functional

    query, key, value = qkv
    if not need_weights:
        return functional.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal), None
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = functional.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
    return weights @ value, weights
