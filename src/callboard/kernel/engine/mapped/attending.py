"""Attention as ONNX defines it, and rotary embeddings; composed of products, so that every mask is served."""

import math
from typing import Any

import numpy as np

from callboard.kernel.engine.mapped.tools import Tools, Value, name_of, operator

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
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> Any:
    if t.outputs == 4:
        raise t.refusal("the products of queries and keys as an output are not mapped")
    q, k, v = t.ref(q), t.ref(k), t.ref(v)
    xp, flat = t.xp(q), q.ndim == 3
    if flat:
        if q_num_heads is None or kv_num_heads is None:
            raise t.refusal("attention of 3 axes needs the numbers of heads")
        q, k, v = (_by_heads(xp, x, n) for x, n in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = xp.concat([t.ref(past_key), k], axis=2), xp.concat([t.ref(past_value), v], axis=2)
    present = (k, v)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (xp.repeat(x, groups, axis=1) for x in (k, v))
    factor = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = xp.matmul(xp.multiply(q, factor), xp.matrix_transpose(xp.multiply(k, factor)))
    bias = _bias(t, mask, is_causal, q.shape[2], k.shape[2], past, scores)
    if softcap:
        scores = t.map("c * tanh(x / c)", x=scores, c=softcap)
    if bias is not None:
        scores = xp.add(scores, bias)
    found = xp.matmul(t.dnn.softmax(scores, axis=-1), v)
    if flat:
        found = xp.permute_dims(found, (0, 2, 1, 3))
        found = xp.reshape(found, (*found.shape[:2], found.shape[2] * found.shape[3]))
    return (found, *present)[: t.outputs]


def _by_heads(xp: Any, x: Any, heads: int) -> Any:
    batch, length, width = x.shape
    return xp.permute_dims(xp.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _bias(t: Tools, mask: Value, causal: int, queries: int, keys: int, past: int, scores: Any) -> Any:
    """What is added to the scores; minus infinity where a key is not seen."""
    dtype, bias = name_of(scores), None
    if mask is not None:
        if mask.shape[-1] != keys:
            raise t.refusal(f"a mask of {mask.shape[-1]} keys for {keys} is not mapped")
        xp, (given,) = t.both(t.ref(mask))
        bias = given
        if name_of(mask) == "bool":
            bias = xp.where(given, t.ref(np.array(0, scores.dtype.np)), t.ref(np.array(-np.inf, scores.dtype.np)))
        bias = t.cast(bias, dtype)
    if causal:
        seen = np.tril(np.ones((queries, keys), bool), past)
        hidden = t.ref(np.where(seen, 0, -np.inf).astype(scores.dtype.np))
        bias = hidden if bias is None else t.xp(hidden).add(bias, hidden)
    return bias


@operator("RotaryEmbedding")
def rotary_embedding(
    t: Tools,
    x: Value,
    cos: Value,
    sin: Value,
    places: Value = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Value:
    x, cos, sin = t.ref(x), t.ref(cos), t.ref(sin)
    xp, flat = t.xp(x), x.ndim == 3
    if flat:
        if not num_heads:
            raise t.refusal("an embedding of 3 axes needs the number of heads")
        x = _by_heads(xp, x, num_heads)
    if places is not None:
        batch, length = places.shape
        line = t.cast(xp.reshape(t.ref(places), (batch * length,)), "i64")
        cos, sin = (xp.reshape(xp.take(table, line, axis=0), (batch, length, table.shape[-1])) for table in (cos, sin))
    cos, sin = (xp.expand_dims(table, axis=1) for table in (cos, sin))
    width = rotary_embedding_dim or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    first, second = (
        (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., : width // 2], turned[..., width // 2 :])
    )
    real = xp.subtract(xp.multiply(cos, first), xp.multiply(sin, second))
    imaginary = xp.add(xp.multiply(sin, first), xp.multiply(cos, second))
    if interleaved:
        both = xp.concat([xp.expand_dims(real, axis=-1), xp.expand_dims(imaginary, axis=-1)], axis=-1)
        found = xp.reshape(both, tuple(turned.shape))
    else:
        found = xp.concat([real, imaginary], axis=-1)
    found = xp.concat([found, rest], axis=-1) if rest.shape[-1] else found
    if flat:
        found = xp.permute_dims(found, (0, 2, 1, 3))
        found = xp.reshape(found, (*found.shape[:2], found.shape[2] * found.shape[3]))
    return found
