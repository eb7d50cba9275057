"""Words of streams, as integers of 64 bits: Philox4x32-10, Philox4x64-10, and points of Sobol.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11; the order of the words is described in
:mod:`callboard.kernel.rng.streams`.
"""

from typing import Any

from callboard.backends.torch.conversion import as_i64
from callboard.backends.torch.vendor import Tensor, torch
from callboard.kernel.rng.sobol import SCRAMBLING, point_table

__all__ = ["LOW", "blocks", "element_words", "high_product", "points", "wide", "words"]

LOW = 0xFFFFFFFF
_ELEMENTS = 0x80000000
"""Bit of the fourth counter word that marks the subsequence of an element."""


def _upper(x: Tensor) -> Tensor:
    return (x >> 32) & LOW


def blocks(counters: tuple[Tensor, Tensor, Tensor, Tensor], seed: int) -> Tensor:
    """The blocks of Philox4x32-10 with these counters, ``[n, 4]`` of words of 32 bits."""
    c0, c1, c2, c3 = counters
    k0, k1 = seed & LOW, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # beyond 2**63 the bits are right
        c0, c1, c2, c3 = _upper(p1) ^ c1 ^ k0, p1 & LOW, _upper(p0) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return torch.stack([c0, c1, c2, c3], -1)


def high_product(x: Tensor, factor: int) -> Tensor:
    """The upper 64 bits of the product of 128 bits, of unsigned numbers."""
    low, high = x & LOW, _upper(x)
    f_low, f_high = factor & LOW, factor >> 32
    middle = high * f_low + _upper(low * f_low)
    other = low * f_high + (middle & LOW)
    return high * f_high + _upper(middle) + _upper(other)


def _blocks64(counter: Tensor, seed: int) -> Tensor:
    """The blocks of Philox4x64-10, ``[n, 4]`` of words of 64 bits."""
    m0, m1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
    zero = torch.zeros_like(counter)
    c0, c1, c2, c3 = counter, zero, zero, zero
    k0, k1 = seed, 0
    for _ in range(10):
        h0, l0 = high_product(c0, m0), c0 * as_i64(m0)
        h1, l1 = high_product(c2, m1), c2 * as_i64(m1)
        c0, c1, c2, c3 = h1 ^ c1 ^ as_i64(k0), l1, h0 ^ c3 ^ as_i64(k1), l0
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % 2**64, (k1 + 0xBB67AE8584CAA73B) % 2**64
    return torch.stack([c0, c1, c2, c3], -1)


def words(kind: str, seed: int, position: int, count: int, where: Any) -> Tensor:
    """``[count]`` words of 32 bits of the stream of ``philox`` or ``philox64``, from a position on."""
    each = 4 if kind == "philox" else 8
    first, skipped = divmod(position, each)
    groups = torch.arange(first, first + -(-(skipped + count) // each), dtype=torch.int64, device=where)
    if kind == "philox":
        rows = groups >> 16
        found = blocks((rows & LOW, _upper(rows), groups & 0xFFFF, torch.zeros_like(groups)), seed)
    else:
        found = _blocks64(groups + 1, seed)  # NumPy counts before it computes
        found = torch.stack([found & LOW, _upper(found)], -1)
    return found.reshape(-1)[skipped : skipped + count]


def wide(of_32: Tensor) -> Tensor:
    """Words of 64 bits from pairs along the last axis, low halves first."""
    pairs = of_32.reshape(*of_32.shape[:-1], of_32.shape[-1] // 2, 2)
    return pairs[..., 0] | pairs[..., 1] << 32


def element_words(seed: int, positions: Tensor, turn: int, second: bool = False) -> Tensor:
    """The block number ``turn`` of the subsequences of elements, ``[n, 4]``; ``second``: of its other half."""
    turns = torch.full_like(positions, turn)
    upper = torch.full_like(positions, _ELEMENTS if second else 0)
    return blocks((turns, upper, positions & LOW, _upper(positions) | _ELEMENTS), seed)


# -- points ------------------------------------------------------------------------------------------------------------


def points(kind: str, seed: int, position: int, count: int, dimensions: int, where: Any) -> Tensor:
    """Points of ``sobol32`` and its relatives: ``[count, dimensions]``, integers of the kind's bits."""
    bits = int(kind[-2:])
    table = torch.from_numpy(point_table(dimensions, bits).view("i8").copy()).to(where)
    shift = None
    if kind.startswith("scrambled"):
        table, shift = _scrambled(table, seed, bits)
    at = torch.arange(position, position + count, dtype=torch.int64, device=where)[:, None]
    found = torch.zeros(count, dimensions, dtype=torch.int64, device=where)
    for bit in range((position + count).bit_length()):
        found ^= torch.where((at >> bit) & 1 != 0, table[min(bit, bits - 1)], 0)
    return found if shift is None else found ^ shift


def _scrambled(table: Tensor, seed: int, bits: int) -> tuple[Tensor, Tensor]:
    """The table under a random lower triangular matrix with ones on its diagonal, one a dimension, and the shift."""
    dimensions = table.shape[1]
    at = torch.arange((bits // 2 + 1) * dimensions, dtype=torch.int64, device=table.device)
    number, dimension = at // dimensions, at % dimensions
    drawn = blocks((number, torch.zeros_like(at), dimension, torch.full_like(at, SCRAMBLING)), seed)
    rows = wide(drawn).reshape(-1, dimensions, 2).transpose(1, 2).reshape(-1, dimensions)
    found = torch.zeros_like(table)
    for row in range(bits):
        diagonal = 1 << bits - 1 - row
        masked = table & (rows[row] & as_i64((1 << bits) - 2 * diagonal) | as_i64(diagonal))
        for step in (32, 16, 8, 4, 2, 1):
            masked = masked ^ masked >> step
        found |= (masked & 1) << bits - 1 - row
    return found, rows[bits] & as_i64((1 << bits) - 1)
