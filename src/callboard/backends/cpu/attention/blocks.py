"""Blocks of scores: products, softcap, bias, ALiBi, masks and dropout, for some queries and some keys of a sequence."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.rng.philox import philox_blocks
from callboard.kernel.attention.scores import AttentionParams

__all__ = ["Block", "Extras", "blocks", "kept", "scores", "softcapped", "work_dtype"]

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 20
"""Scores in a block, about: a few MiB, which a cache holds."""
KEYS = 512
"""Keys in a block."""


class Block(NamedTuple):
    """Queries and keys, both counted from the first of their sequence."""

    q: slice
    k: slice


class Extras(NamedTuple):
    """The terms added to the scores of a sequence.

    Attributes:
        bias: ``[heads or 1, queries or 1, keys]``.
        slopes: ``[heads]``.
    """

    bias: Array | None = None
    slopes: Array | None = None


def work_dtype(dtype: "np.dtype[Any]") -> "np.dtype[Any]":
    """The compute dtype: f64 for f64, else f32."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def blocks(queries: int, keys: int, heads: int, params: AttentionParams) -> Iterator[tuple[slice, list[Block]]]:
    """For each block of queries, yield the blocks of keys that are visible to at least one of its queries."""
    step = max(16, min(512, ELEMENTS // (heads * KEYS)))
    shift = keys - queries if params.bottom_right else 0
    for first in range(0, queries, step):
        last = min(first + step, queries)
        low = 0 if params.left < 0 else max(0, first + shift - params.left)
        high = keys if params.right < 0 else min(keys, last + shift + params.right)
        rows = slice(first, last)
        yield rows, [Block(rows, slice(at, min(at + KEYS, high))) for at in range(low, high, KEYS)]


def scores(
    q: Array, k: Array, block: Block, lengths: tuple[int, int], params: AttentionParams, extras: Extras
) -> Array:
    """The scores of a block, -inf where a query does not see a key.

    Args:
        q: ``[kv_heads, group, queries of the block, dim]``.
        k: ``[kv_heads, keys of the block, dim]``.
        block: Positions of the block.
        lengths: Queries and keys of the sequence.
        params, extras: The other parameters of a score.

    Returns:
        ``[kv_heads, group, queries, keys]``.
    """
    kv_heads, group, rows, dim = q.shape
    found: Array = (q.reshape(kv_heads, group * rows, dim) @ k.swapaxes(-1, -2)).reshape(kv_heads, group, rows, -1)
    found *= found.dtype.type(params.scale)
    if params.softcap:
        found = softcapped(found, params.softcap)
    shift = lengths[1] - lengths[0] if params.bottom_right else 0
    away = np.arange(block.k.start, block.k.stop) - (np.arange(block.q.start, block.q.stop)[:, None] + shift)
    if extras.bias is not None:
        part = extras.bias[:, block.q if extras.bias.shape[1] > 1 else slice(None), block.k]
        found += part.astype(found.dtype).reshape(*_split(part.shape[0], kv_heads), *part.shape[1:])
    if extras.slopes is not None:
        slopes = extras.slopes.astype(found.dtype).reshape(kv_heads, group, 1, 1)
        found -= slopes * np.abs(away).astype(found.dtype)
    unseen = np.zeros(away.shape, np.bool_)
    if params.left >= 0:
        unseen |= away < -params.left
    if params.right >= 0:
        unseen |= away > params.right
    if unseen.any():
        found[..., unseen] = -np.inf
    return found


def softcapped(x: Array, softcap: float) -> Array:
    """``softcap * tanh(x / softcap)``."""
    cap = x.dtype.type(softcap)
    found: Array = np.tanh(x / cap) * cap
    return found


def kept(block: Block, sequence: int, heads: int, seed: int, offset: int, dropout: float) -> Array:
    """Mask of the probabilities of a block that dropout keeps, ``[heads, queries, keys]``.

    The number of a score is a word of Philox4x32-10 with the key ``seed``: word ``key % 4`` of the block whose counter
    is ``(key // 4, query, sequence * heads + head, offset)``. It stays if that is at least ``dropout * 2**32``.
    """
    quads = np.arange(block.k.start // 4, -(-block.k.stop // 4), dtype=np.uint64)
    rows = np.arange(block.q.start, block.q.stop, dtype=np.uint64)
    lanes = np.arange(sequence * heads, (sequence + 1) * heads, dtype=np.uint64)
    shape = (lanes.size, rows.size, quads.size)
    counters = (
        np.broadcast_to(quads, shape).flatten(),
        np.broadcast_to(rows[:, None], shape).flatten(),
        np.broadcast_to(lanes[:, None, None], shape).flatten(),
        np.full(lanes.size * rows.size * quads.size, offset, np.uint64),
    )
    words = philox_blocks(counters, seed).reshape(*shape[:2], 4 * quads.size)
    first = block.k.start % 4
    words = words[..., first : first + block.k.stop - block.k.start]
    stays: Array = words >= np.uint32(int(dropout * 2**32))
    return stays


def _split(heads: int, kv_heads: int) -> tuple[int, int]:
    return (1, 1) if heads == 1 else (kv_heads, heads // kv_heads)
