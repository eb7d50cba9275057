"""Plans of conversions, chosen by the formats of the matrices."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.sparse import blocks, conversions
from callboard.backends.cuda.sparse.conversions import Converter, FromDense, too_long
from callboard.backends.cuda.sparse.lists import FromBlocks
from callboard.core.library import plans
from callboard.kernel import sparse

if TYPE_CHECKING:
    from callboard.backends.cuda.sparse.library import CudaSparse

__all__ = ["convert", "from_dense", "to_dense", "transpose"]


@plans(sparse.ToDense)
def to_dense(library: "CudaSparse", op: sparse.ToDense) -> "Callable[..., None]":
    """A plan: called with ``(a, out)``."""
    of_blocks = isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef)
    return (blocks.to_dense if of_blocks else conversions.to_dense)(library.cusparse, op)


@plans(sparse.FromDense, sizes=True)
def from_dense(library: "CudaSparse", op: sparse.FromDense) -> "FromDense | blocks.ToBlocks":
    """A plan: called with ``(dense, out, count)``."""
    if op.block is None:
        return FromDense(library.cusparse, op)
    return blocks.ToBlocks(library.cusparse, library.maker, op)


@plans(sparse.Convert, sizes=True, refuses=too_long)
def convert(library: "CudaSparse", op: sparse.Convert) -> "Converter | blocks.ToBlocks | FromBlocks":
    """A plan: called with ``(a, out, count)``."""
    if isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef):
        return FromBlocks(library.cusparse, library.maker, op)
    if op.block is not None:
        return blocks.ToBlocks(library.sizer, library.maker, op)
    return Converter(library.cusparse, library.maker, op)


@plans(sparse.Transpose, refuses=too_long, captures=False)
def transpose(library: "CudaSparse", op: sparse.Transpose) -> FromBlocks:
    """A plan: called with ``(a, out)``."""
    return FromBlocks(library.cusparse, library.maker, op)
