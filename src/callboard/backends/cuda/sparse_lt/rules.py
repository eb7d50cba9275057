"""Ops unsupported by cuSPARSELt, decided from the message in the application, before anything is sent.

All of it holds for cuSPARSELt 0.8.0 on Hopper (compute capability 9.0), found by asking it.
"""

from typing import Any

from callboard.backends.cuda.sparse_lt.cusparselt import ALIGNMENT
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout
from callboard.kernel.sparse_lt import Compress, Decompress
from callboard.kernel.sparse_lt.products import Product

__all__ = ["refuses_compressed", "refuses_matrix", "refuses_product", "tile_of"]


INNER_ADJACENT = ("f32", "i8", "f8_e4m3", "f8_e5m2")
"""Dtypes that the tensor cores of Hopper take with the inner axis adjacent only. Asked for another order, cuSPARSELt
refuses those of 8 bits; planning f32 (TF32) it loops for ever."""


def tile_of(dtype: DType) -> int:
    """The number that extents of structured matrices are multiples of, and the steps between their rows: 32 bytes."""
    return 2 * ALIGNMENT // dtype.itemsize


def refuses_matrix(op: Compress) -> str | None:
    """The reason why a matrix is not compressed, with a cure; None if it is."""
    why = _extents("x", op.x.dtype, op.x.shape)
    return why or (_steps("x", op.x.layout, tile_of(op.x.dtype)) if op.x.size else None)


def refuses_compressed(op: Decompress) -> str | None:
    """The reason why a compressed matrix cannot be in cuSPARSELt's format."""
    return _extents("a", DTYPES[op.a.dtype], op.a.shape)


def refuses_product(op: Product[Any]) -> str | None:
    """The reason why a product is unsupported, with a cure; None if it is supported."""
    extents, _, result = op.product()
    structured, dense = op.factors()
    dtype, first = DTYPES[structured.dtype], op.structured_first
    names = ("a", "b") if first else ("w", "x")
    if why := _extents(names[0], dtype, structured.shape):
        return why
    if result.size == 0:
        return None
    tile = ALIGNMENT // dtype.itemsize
    if extents.n % tile:
        return (
            f"{names[1]} is {dense.layout!r}; on tensor cores it must have a multiple of {tile} "
            f"{'columns' if first else 'rows'}: pad it"
        )
    if dtype.name in INNER_ADJACENT and dense.layout.strides[-2 if first else -1] != 1:
        cure = "pass the view dev.put(b.T.copy()).T" if first else "pass dev.copy(x)"
        return f"{names[1]} is {dense.layout!r}; {dtype} factors need their inner axis adjacent: {cure}"
    out = result if op.out is None else op.out.layout
    given = [(names[1], dense.layout), ("out", out)]
    if op.c is not None:
        given.append(("c", op.c.layout))
        if op.c.layout.strides != out.strides:
            return f"c is {op.c.layout!r} and out is {out!r}; on tensor cores both must have the same strides"
    for name, layout in given:
        if why := _steps(name, layout, ALIGNMENT // layout.dtype.itemsize):
            return why
    return None


def _extents(name: str, dtype: DType, shape: tuple[int, ...]) -> str | None:
    tile, (outer, k) = tile_of(dtype), shape[-2:]
    if outer % tile or k % tile:
        return (
            f"{name} is {dtype}{list(shape)}; on tensor cores both extents must be multiples of {tile}: pad it with 0"
        )
    return None


def _steps(name: str, layout: Layout, tile: int) -> str | None:
    """Steps from row to row (or column to column), and from matrix to matrix, as tensor cores load them."""
    steps = [s for s, n in zip(layout.strides, layout.shape, strict=True) if s != 1 and n > 1]
    if any(step % tile for step in steps):
        return f"{name} is {layout!r}; on tensor cores its strides must be multiples of {tile}: pass dev.copy({name})"
    return None
