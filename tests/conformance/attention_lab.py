"""Shared by the suites of attention: drawn calls, and attention written out densely in f64, with its gradients."""

from typing import Any, NamedTuple

import numpy as np
from blas_lab import Array, values
from hypothesis import strategies as st

from callboard.backends.cpu.attention.blocks import Block, kept
from callboard.core.dtype import DTYPES, DType

SETTINGS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "causal from the first key": {"causal": True, "alignment": "top_left"},
    "window": {"window_size": (5, 3)},
    "causal window": {"window_size": (6, -1), "causal": True},
    "softcap": {"softcap": 1.5, "causal": True},
    "scale": {"softmax_scale": 0.3},
    "dropout": {"dropout_p": 0.3, "dropout_seed": 7, "dropout_offset": 11},
}
EXTRAS = ("none", "bias", "bias of keys", "sink", "slopes", "lengths", "all")


class Dense(NamedTuple):
    """Attention with every score stored, f64.

    Attributes:
        out, lse: ``[batch, heads, queries, dim_v]`` and ``[batch, heads, queries]``.
        p, x: Probabilities, without dropout, and ``scale * q @ k``.
        kept: What the dropout multiplies them by.
    """

    out: Array
    lse: Array
    p: Array
    x: Array
    kept: Array


class Call(NamedTuple):
    """A drawn call; arrays are ``[batch, heads, rows, dim]`` and exactly as the dtype holds them.

    Attributes:
        first: Number of its first sequence, by which the numbers of its dropout are named.
    """

    dtype: DType
    q: Array
    k: Array
    v: Array
    extras: dict[str, Array]
    settings: dict[str, Any]
    first: int = 0

    @property
    def terms(self) -> int:
        return max(self.q.shape[3], self.k.shape[2], self.q.shape[2])


def call(
    dtype: DType,
    settings: str,
    extra: str,
    *,
    batch: int = 2,
    heads: tuple[int, int] = (4, 2),
    rows: tuple[int, int] = (19, 33),
    dims: tuple[int, int] = (16, 16),
    seed: int = 0,
) -> Call:
    """A call with these extents; the settings and extras are rows of the tables."""
    (h, h_kv), (n, m), (d, d_v) = heads, rows, dims
    q, k, v = (
        values(dtype, s, seed + i) for i, s in enumerate(((batch, h, n, d), (batch, h_kv, m, d), (batch, h_kv, m, d_v)))
    )
    wide = DTYPES["f64"] if dtype.name == "f64" else DTYPES["f32"]
    extras: dict[str, Array] = {}
    if extra in ("bias", "all"):
        extras["bias"] = values(dtype, (1, h, n, m), seed + 4)
    if extra == "bias of keys":
        extras["bias"] = values(wide, (batch, 1, 1, m), seed + 4)
    if extra in ("sink", "all"):
        extras["sink"] = values(wide, (h,), seed + 5)
    if extra in ("slopes", "all"):
        extras["alibi_slopes"] = abs(values(wide, (h,), seed + 6)) / 4
    if extra in ("lengths", "all"):
        random = np.random.default_rng(seed)
        extras["seqlens_q"] = random.integers(0, n + 1, batch).astype(np.int32)
        extras["seqlens_k"] = random.integers(0, m + 1, batch).astype(np.int32)
    return Call(dtype, q, k, v, extras, SETTINGS[settings])


def ordered(x: Array, layout: str) -> Array:
    """Heads first, as the layout has it."""
    return x if layout == "bhsd" else np.ascontiguousarray(x.swapaxes(1, 2))


def dense(c: Call) -> Dense:
    """Attention, written out."""
    s = {"causal": False, "alignment": "bottom_right", "window_size": (-1, -1), "softcap": 0.0, "dropout_p": 0.0}
    s |= c.settings
    (batch, heads, n, d), m = c.q.shape, c.k.shape[2]
    group = heads // c.k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (c.q, c.k, c.v))
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    raw = np.einsum("bhid,bhjd->bhij", q, k) * s.get("softmax_scale", 1 / np.sqrt(d))
    x = s["softcap"] * np.tanh(raw / s["softcap"]) if s["softcap"] else raw
    if "bias" in c.extras:
        x = x + c.extras["bias"].astype(np.float64)
    lengths_q = c.extras.get("seqlens_q", np.full(batch, n))
    lengths_k = c.extras.get("seqlens_k", np.full(batch, m))
    i, j = np.arange(n)[:, None], np.arange(m)
    seen = np.zeros((batch, 1, n, m), bool)
    slopes = c.extras.get("alibi_slopes", np.zeros(heads)).astype(np.float64)
    left, right = s["window_size"]
    right = 0 if s["causal"] else right
    for b in range(batch):
        away = j - (i + (lengths_k[b] - lengths_q[b] if s["alignment"] == "bottom_right" else 0))
        here = (i < lengths_q[b]) & (j < lengths_k[b])
        here = here & (away >= -left) if left >= 0 else here
        seen[b] = here & (away <= right) if right >= 0 else here
        x[b] = x[b] - slopes[:, None, None] * abs(away)
    x = np.where(seen, x, -np.inf)
    sink = c.extras["sink"].astype(np.float64)[:, None] if "sink" in c.extras else np.full((heads, 1), -np.inf)
    any_seen = (i < lengths_q[:, None, None])[:, None, :, 0] if "sink" in c.extras else seen.any(-1)
    top = np.maximum(x.max(-1, initial=-np.inf), sink)
    top = np.where(np.isfinite(top), top, 0)
    total = np.exp(x - top[..., None]).sum(-1) + np.exp(sink - top)
    with np.errstate(divide="ignore"):
        lse = np.where(any_seen, top + np.log(total), -np.inf)
    p = np.where(np.isfinite(lse)[..., None], np.exp(x - np.where(np.isfinite(lse), lse, 0)[..., None]), 0)
    stays = np.ones_like(p)
    if s["dropout_p"]:
        where = Block(slice(0, n), slice(0, m))
        numbers = s["dropout_seed"], s["dropout_offset"], s["dropout_p"]
        masks = [kept(where, c.first + b, heads, *numbers) for b in range(batch)]
        stays = np.stack(masks).reshape(p.shape) / (1 - s["dropout_p"])
    return Dense(np.einsum("bhij,bhjd->bhid", p * stays, v), lse, p, raw, stays)


def gradients(c: Call, dout: Array) -> dict[str, tuple[Array, Array]]:
    """Of each operand the gradient, and the magnitude of what was added up for it."""
    found = dense(c)
    group = c.q.shape[1] // c.k.shape[1]
    scale = c.settings.get("softmax_scale", 1 / np.sqrt(c.q.shape[3]))
    softcap = c.settings.get("softcap", 0)
    q, k, v, do = (x.astype(np.float64) for x in (c.q, c.k, c.v, dout))
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    dp = np.einsum("bhid,bhjd->bhij", do, v) * found.kept
    size = np.einsum("bhid,bhjd->bhij", abs(do), abs(v)) * found.kept
    delta = (found.p * dp).sum(-1, keepdims=True)
    ds, size = found.p * (dp - delta), found.p * (size + (found.p * size).sum(-1, keepdims=True))
    cap = 1 - np.tanh(found.x / softcap) ** 2 if softcap else 1
    sides = {}
    for name, (grad, weight, one, two, three) in {
        "size": (size, found.p * found.kept, abs(q), abs(k), abs(do)),
        "value": (ds, found.p * found.kept, q, k, do),
    }.items():
        inner = grad * cap * scale
        dk, dv = np.einsum("bhij,bhid->bhjd", inner, one), np.einsum("bhij,bhid->bhjd", weight, three)
        dk, dv = (x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2) for x in (dk, dv))
        sides[name] = {"dq": np.einsum("bhij,bhjd->bhid", inner, two), "dk": dk, "dv": dv}
        if "bias" in c.extras:
            axes = tuple(a for a in range(3) if c.extras["bias"].shape[a] == 1)
            sides[name]["dbias"] = grad.sum(axes, keepdims=True)
        if "sink" in c.extras:
            weights = np.exp(c.extras["sink"].astype(np.float64)[:, None] - found.lse)
            weights = np.where(np.isfinite(found.lse), weights, 0)
            whole = delta[..., 0] if name == "value" else -(found.p * size).sum(-1)
            sides[name]["dsink"] = -(weights * whole).sum((0, 2))
    return {name: (x, sides["size"][name]) for name, x in sides["value"].items()}


@st.composite
def shapes(draw: Any, dtype: DType) -> dict[str, Any]:
    """Extents of a call: those that cuDNN takes, and odd ones."""
    even = draw(st.booleans())
    sizes = (8, 64, 128) if even else (1, 5, 24, 72)
    kv = draw(st.integers(1, 2))
    dim = draw(st.sampled_from(sizes))
    return {
        "batch": draw(st.integers(1, 3)),
        "heads": (kv * draw(st.integers(1, 3)), kv),
        "rows": (draw(st.sampled_from((1, 7, 64, 81))), draw(st.sampled_from((1, 9, 64, 100)))),
        "dims": (dim, dim if even else draw(st.sampled_from(sizes))),
        "seed": draw(st.integers(0, 2**16)),
    }
