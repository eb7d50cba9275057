"""Products of queries, keys and values with a softmax between them, in one op of ``dev.attention``."""

from typing import Any

from callboard.core.operand import Operand
from callboard.kernel.elementwise.shapes import broadcast
from callboard.kernel.engine.fusing.linear import FLOATS
from callboard.kernel.engine.mapped.tools import Tools, Value, name_of

__all__ = ["attended", "attention"]

ON_A_CPU: tuple[str, ...] = ("f16", "bf16")
"""In f32 and f64, products by OpenBLAS and a softmax are faster there."""
LOWEST = {"f16": -65504.0, "bf16": -3.3e38}
"""The smallest number of halves: a mask that is no infinity does not become one."""


def attention(
    t: Tools, q: Value, k: Value, v: Value, mask: Value = None, flat: Value = None, whole: Value = None, *, scale: float
) -> Value | None:
    """``softmax(scale * q @ k + mask) @ v``, or None if these values are not for one op.

    Args:
        t: The libraries of the device.
        q: ``[batch, heads, queries, size]``.
        k: ``[batch, heads, size, keys]``.
        v: ``[batch, heads, keys, size]``.
        mask: Added to the scores, to which it is broadcast.
        flat, whole: Two shapes by way of which the last axes of ``k`` are exchanged; None: ``k`` is as above.
        scale: Factor of the products.
    """
    if not all(isinstance(x, Operand) and x.ndim == 4 for x in (q, k, v)):
        return None
    if flat is None or whole is None:
        k = t.xp(k).matrix_transpose(k)
    elif not _exchanges(k.shape, flat, whole):
        return None
    return attended(t, q, k, v, mask, scale=scale) if q.shape[1] == k.shape[1] else None


def attended(t: Tools, q: Value, k: Value, v: Value, mask: Value = None, *, scale: float, **more: Any) -> Value | None:
    """As :func:`attention`, with ``k`` as ``[batch, heads, keys, size]``, whose heads may serve several of ``q`` each.

    Args:
        t, q, k, v, mask, scale: See there.
        more: Settings of ``dev.attention.forward``.
    """
    if not all(isinstance(x, Operand) and x.ndim == 4 and 0 not in x.shape for x in (q, k, v)):
        return None
    dtype, (batch, heads, queries, size), keys = name_of(q), q.shape, k.shape[2]
    if dtype not in (ON_A_CPU if on_cpu(q) else FLOATS) or name_of(k) != dtype or name_of(v) != dtype:
        return None
    if heads % k.shape[1]:
        return None
    if k.shape != (batch, k.shape[1], keys, size) or v.shape[:3] != k.shape[:3]:
        return None
    if any(x.shape[3] > 1 and x.strides[3] != 1 for x in (q, k, v)):
        return None
    bias = None
    if mask is not None:
        bias = _bias(t, mask, (batch, heads, queries, keys), dtype)
        if bias is None:
            return None
    rows = [t.xp(x).permute_dims(x, (0, 2, 1, 3)) for x in (q, k, v)]
    found = t.attention.forward(*rows, bias=bias, softmax_scale=scale, **more).out
    return t.xp(found).permute_dims(found, (0, 2, 1, 3))


def on_cpu(x: Any) -> bool:
    """Whether it is on a CPU."""
    return bool(x.device.lower().startswith("cpu"))


def _exchanges(shape: tuple[int, ...], flat: Value, whole: Value) -> bool:
    """Whether a reshape to ``flat``, an exchange of the last two of three axes and a reshape to ``whole`` do that."""
    if isinstance(flat, Operand) or isinstance(whole, Operand):
        return False
    batch, heads, keys, size = shape
    first, second = ([int(n) for n in each.ravel()] for each in (flat, whole))
    return first in ([-1, keys, size], [batch * heads, keys, size]) and second == [batch, heads, size, keys]


def _bias(t: Tools, mask: Value, shape: tuple[int, ...], dtype: str) -> Any | None:
    """The mask as ``dev.attention`` takes it; None if it does not."""
    if name_of(mask) not in (dtype, "f32") or dtype == "f64" != name_of(mask):
        return None
    if not mask.ndim or mask.shape[-1] != shape[-1] or broadcast([shape, tuple(mask.shape)]) != shape:
        return None

    def made() -> Any:
        four: Any = t.ref(t.xp(mask).reshape(mask, (*[1] * (4 - mask.ndim), *mask.shape)))
        if dtype in LOWEST and four.shape[2] < shape[2] and not on_cpu(four):
            # cuDNN takes it if it is one for each query, in the dtype of the queries.
            xp, full = t.xp(four), (*four.shape[:2], *shape[2:])
            wide = four if name_of(four) == dtype else t.cast(xp.maximum(four, LOWEST[dtype]), dtype)
            four = xp.reshape(xp.broadcast_to(wide, full), full, copy=True)
        return four if four.shape[3] == 1 or four.strides[3] == 1 else t.xp(four).reshape(four, four.shape, copy=True)

    return t.once(("mask", dtype, shape[2], id(mask)), mask, made)
