"""Attention, rotations of positions, linear attention, causal convolution."""

import math
from typing import Any

import numpy as np

from callboard.core.errors import UnsupportedOp
from callboard.core.operand import Operand
from callboard.kernel.engine.fusing.attention import attended
from callboard.kernel.engine.mapped.tools import Tools, Value, kind_of, name_of, operator

__all__: list[str] = []


@operator("Attention")
def attention(
    t: Tools,
    q: Value,
    k: Value,
    v: Value,
    mask: Value = None,
    past_key: Value = None,
    past_value: Value = None,
    lengths: Value = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> Any:
    flat, dtype = q.ndim == 3, name_of(q)
    for value, what in ((q, "Q"), (k, "K"), (v, "V")):
        t.expect(value, what, q.shape[0] if q.ndim else None, *[None] * (2 if flat else 3))
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise t.refusal("Attention of three axes without numbers of heads is not mapped")
        q, k, v = _heads(t, q, q_num_heads), _heads(t, k, kv_num_heads), _heads(t, v, kv_num_heads)
    _check_heads(t, q, k, v, past_key, past_value)
    if past_key is not None:
        k, v = _joined(t, past_key, k, 2), _joined(t, past_value, v, 2)
    present = k, v
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    before = past_key.shape[2] if past_key is not None else 0
    window = (left_window_size, 0 if is_causal else right_window_size)
    if is_causal and right_window_size >= 0:
        window = (left_window_size, min(right_window_size, 0))
    whole = (*q.shape[:3], k.shape[2])
    if t.outputs == 1 and lengths is None and softcap <= 0.0 and _precise(t, softmax_precision, dtype):
        found = _in_one(t, q, k, v, mask, whole, before, window, scale)
        if found is not None:
            return _flattened(t, found) if flat else found
    factor = math.sqrt(scale)
    if q.shape[1] != k.shape[1]:
        k, v = (t.xp(x).repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    xp, (q, k, v) = t.both(q, k, v)
    scores = xp.matmul(_scaled(t, q, factor), xp.matrix_transpose(_scaled(t, k, factor)))
    shown = scores
    if softcap > 0.0:
        scores = xp.multiply(xp.tanh(xp.divide(scores, softcap)), softcap)
        shown = scores
    bias = _bias(t, whole, name_of(scores), mask, lengths, before, window)
    if bias is not None:
        scores = _plus(t, scores, bias)
        shown = scores if qk_matmul_output_mode == 2 else shown
    wide = scores if softmax_precision is None else t.cast(scores, t.element(softmax_precision))
    shares = t.dnn.softmax(t.ref(wide), axis=-1)
    if bias is not None:
        top = t.xp(bias).max(bias, axis=-1, keepdims=True)
        masked = t.xp(top).equal(top, -math.inf)
        both, (masked, shares) = t.both(masked, shares)
        shares = both.where(masked, both.zeros_like(shares), shares)
    shown = shares if qk_matmul_output_mode == 3 else shown
    found = xp.matmul(t.cast(shares, dtype), v)
    if flat:
        found = _flattened(t, found)
    return (found, *present, t.cast(shown, dtype))[: t.outputs]


def _precise(t: Tools, code: int | None, dtype: str) -> bool:
    """Whether a softmax in f32 (f64 for f64) has the precision that is asked for."""
    return code is None or t.element(code) in (dtype, "f16", "bf16", "f32")


def _in_one(
    t: Tools,
    q: Value,
    k: Value,
    v: Value,
    mask: Value,
    shape: tuple[int, ...],
    before: int,
    window: tuple[int, int],
    scale: float,
) -> Value | None:
    """Attention by one op; None if there is none for it."""
    queries, keys = shape[2:]
    try:
        if mask is None and window == (-1, 0) and before in (0, keys - queries):
            side: Any = "bottom_right" if before else "top_left"
            return attended(t, q, k, v, scale=scale, causal=True, alignment=side)
        bias = _bias(t, shape, name_of(q), mask, None, before, window)
        return attended(t, q, k, v, bias, scale=scale)
    except UnsupportedOp:
        return None


def _flattened(t: Tools, x: Value) -> Value:
    """From [batch, heads, steps, size] to [batch, steps, heads * size]."""
    xp = t.xp(x)
    x = xp.permute_dims(x, (0, 2, 1, 3))
    return xp.reshape(x, (*x.shape[:2], math.prod(x.shape[2:])))


def _check_heads(t: Tools, q: Value, k: Value, v: Value, past_key: Value, past_value: Value) -> None:
    """Check what a product would broadcast: [batch, heads, steps, size] of each."""
    batch, heads, _, size = q.shape
    t.expect(k, "K", batch, None, None, size)
    _, groups, keys, _ = k.shape
    t.expect(v, "V", batch, groups, keys, None)
    if not groups or heads % groups:
        raise t.misfit(f"Q has {heads} heads, and K has {groups}, which is no divisor")
    if (past_key is None) != (past_value is None):
        raise t.misfit("one of past_key and past_value is left out")
    if past_key is not None:
        t.expect(past_key, "past_key", batch, groups, None, size)
        t.expect(past_value, "past_value", batch, groups, past_key.shape[2], v.shape[3])


def _heads(t: Tools, x: Value, count: int) -> Value:
    """From [batch, steps, heads * size] to [batch, heads, steps, size]."""
    batch, steps, size = x.shape
    xp = t.xp(x)
    return xp.permute_dims(xp.reshape(x, (batch, steps, count, size // count)), (0, 2, 1, 3))


def _joined(t: Tools, a: Value, b: Value, axis: int) -> Value:
    xp, parts = t.both(a, b)
    return xp.concat(parts, axis=axis)


def _plus(t: Tools, a: Value, b: Value) -> Value:
    xp, (x, y) = t.both(a, b)
    return xp.add(x, y)


def _scaled(t: Tools, x: Value, factor: float) -> Value:
    return t.xp(x).multiply(x, factor if name_of(x) != "bf16" else float(np.float32(factor)))


def _bias(
    t: Tools,
    shape: tuple[int, ...],
    dtype: str,
    mask: Value,
    lengths: Value,
    before: int,
    window: tuple[int, int],
) -> Value | None:
    """What is added to scores [batch, heads, queries, keys]: a mask, minus infinity outside of windows and lengths."""
    queries, keys = shape[-2:]
    bias = None
    if mask is not None:
        if mask.ndim > 4 or not mask.ndim or mask.shape[-1] > keys:
            raise t.misfit(f"attn_mask has the shape {list(mask.shape)}, for scores {list(shape)}")
        bias = _filled(t, mask, keys)
        t.fits(bias, "attn_mask", shape)
        if kind_of(bias) == "b":
            bias = _allowed(t, bias, dtype)
        bias = t.cast(bias, dtype)
    row, column = np.arange(queries)[:, None], np.arange(keys)[None, :]
    count = None
    if lengths is not None:
        count = t.counts(lengths, "nonpad_kv_seqlen", keys, (shape[0],)).reshape(-1, 1, 1, 1)
    place = row + (before if count is None else count - queries)
    seen = np.ones((queries, keys), bool)
    left, right = window
    if left >= 0:
        seen = seen & (place - column <= left)
    if right >= 0:
        seen = seen & (column - place <= right)
    if count is not None:
        seen = seen & (column < count)
    if seen.all():
        return bias
    limits = _allowed(t, seen, dtype)
    return limits if bias is None else _plus(t, bias, limits)


def _filled(t: Tools, mask: Value, keys: int) -> Value:
    """The mask with as many columns as there are keys; those added are not seen."""
    missing = keys - mask.shape[-1]
    if missing <= 0:
        return mask
    fill = np.full((*mask.shape[:-1], missing), False if kind_of(mask) == "b" else -np.inf)
    return _joined(t, mask, t.cast(fill, name_of(mask)), mask.ndim - 1)


def _allowed(t: Tools, seen: Value, dtype: str) -> Value:
    """0 where it holds, minus infinity elsewhere."""
    zero, low = (t.cast(np.array(number), dtype) for number in (0.0, -np.inf))
    xp, (c, a, b) = t.both(seen, zero, low)
    return xp.where(c, a, b)


@operator("RotaryEmbedding")
def rotary_embedding(
    t: Tools,
    x: Value,
    cos: Value,
    sin: Value,
    places: Value = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    xp, shape = t.xp(x), x.shape
    lead = (None,) if places is not None else (shape[0], shape[1 if x.ndim == 3 else 2])
    t.expect(cos, "cos_cache", *lead, None)
    t.expect(sin, "sin_cache", *cos.shape)
    if places is not None:
        t.expect(places, "position_ids", shape[0], shape[1 if x.ndim == 3 else 2])
        if not isinstance(places, Operand) and places.size and int(places.min()) < 0:
            raise t.misfit(f"position_ids holds {int(places.min())}")
    if x.ndim == 3:
        if not num_heads:
            raise t.refusal("RotaryEmbedding of three axes without num_heads is not mapped")
        x = xp.reshape(x, (*shape[:2], num_heads, shape[2] // num_heads))
    else:
        x = xp.permute_dims(x, (0, 2, 1, 3))
    if places is not None:
        parts = [t.both(cache, places) for cache in (cos, sin)]
        cos, sin = (
            both.reshape(both.take(c, both.reshape(i, (math.prod(i.shape),)), axis=0), (*i.shape, c.shape[-1]))
            for both, (c, i) in parts
        )
    size = rotary_embedding_dim or x.shape[3]
    moved, rest = x[..., :size], x[..., size:]
    a, b = (moved[..., ::2], moved[..., 1::2]) if interleaved else (moved[..., : size // 2], moved[..., size // 2 :])
    xp, (a, b, c, s) = t.both(a, b, cos, sin)
    c, s = xp.expand_dims(c, axis=2), xp.expand_dims(s, axis=2)
    real = xp.subtract(xp.multiply(c, a), xp.multiply(s, b))
    imaginary = xp.add(xp.multiply(s, a), xp.multiply(c, b))
    if interleaved:
        pair = (xp.expand_dims(real, axis=-1), xp.expand_dims(imaginary, axis=-1))
        turned = xp.reshape(xp.concat(pair, axis=-1), moved.shape)
    else:
        turned = xp.concat((real, imaginary), axis=-1)
    found = xp.concat((turned, t.ref(rest)), axis=-1) if rest.shape[-1] else turned
    return xp.reshape(found, shape) if len(shape) == 3 else xp.permute_dims(found, (0, 2, 1, 3))


@operator("LinearAttention")
def linear_attention(
    t: Tools,
    query: Value,
    key: Value,
    value: Value,
    state: Value = None,
    decay: Value = None,
    beta: Value = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: bytes = b"gated_delta",
) -> Any:
    t.expect(query, "query", None, None, None)
    batch, steps, _ = query.shape
    t.expect(key, "key", batch, steps, None)
    t.expect(value, "value", batch, steps, None)
    dtype, kept = name_of(query), name_of(query if state is None else state)
    heads, wanted = kv_num_heads, (decay is not None, beta is not None)
    rules = {b"linear": (False, False), b"gated": (True, False), b"delta": (False, True), b"gated_delta": (True, True)}
    if rules.get(update_rule) != wanted:
        raise t.refusal(f"LinearAttention by {update_rule.decode()} with other inputs is not mapped")
    q = t.ref(t.cast(_heads(t, query, q_num_heads), "f32"))
    k, v = (t.ref(t.cast(_heads(t, x, heads), "f32")) for x in (key, value))
    xp, size, width = t.xp(q), k.shape[3], v.shape[3]
    gates = None if decay is None else xp.exp(t.ref(t.cast(_heads(t, decay, heads), "f32")))
    shares = None if beta is None else t.ref(t.cast(_heads(t, beta, beta.shape[2]), "f32"))
    now = xp.zeros((batch, heads, size, width), dtype=xp.float32) if state is None else t.ref(t.cast(state, "f32"))
    outs = []
    for at in range(steps):
        one = slice(at, at + 1)
        column = xp.matrix_transpose(k[:, :, one])
        row = v[:, :, one]
        if gates is not None:
            now = xp.multiply(now, xp.matrix_transpose(gates[:, :, one]))
        if shares is not None:
            row = xp.multiply(shares[:, :, one], xp.subtract(row, xp.matmul(k[:, :, one], now)))
        now = xp.add(now, xp.multiply(column, row))
        read = now if q_num_heads == heads else xp.repeat(now, q_num_heads // heads, axis=1)
        outs.append(xp.matmul(q[:, :, one], read))
    found = xp.multiply(xp.concat(outs, axis=2), scale or 1.0 / math.sqrt(size))
    found = xp.reshape(xp.permute_dims(found, (0, 2, 1, 3)), (batch, steps, q_num_heads * width))
    return (t.cast(found, dtype), t.cast(now, kept))[: t.outputs]


@operator("CausalConvWithState")
def causal_conv(
    t: Tools, x: Value, w: Value, b: Value = None, state: Value = None, *, activation: bytes = b"none"
) -> Any:
    size, dtype = w.shape[2], name_of(x)
    if state is None:
        state = t.cast(np.zeros((*x.shape[:2], size - 1)), dtype)
    whole = t.ref(_joined(t, state, x, 2)) if size > 1 else t.ref(x)
    xp = t.xp(whole)
    found = t.dnn.conv(
        xp.expand_dims(whole, axis=2),
        t.ref(t.xp(w).expand_dims(w, axis=2)),
        groups=x.shape[1],
        bias=None if b is None else t.ref(b),
    )
    found = xp.squeeze(found, axis=2)
    if activation in (b"silu", b"swish"):
        found = t.cast(t.map("x / (1.0 + exp(-x))", x=t.cast(found, "f32")), dtype)
    elif activation != b"none":
        raise t.refusal(f"the activation {activation.decode()} is not mapped")
    return (found, whole[:, :, whole.shape[2] - (size - 1) :])[: t.outputs]


@operator("SwiGLU")
def swiglu(t: Tools, a: Value, b: Value, *, alpha: float = 1.0) -> Value:
    return t.map("a / (1.0 + exp(-alpha * a)) * b", a=a, b=b, alpha=alpha)
