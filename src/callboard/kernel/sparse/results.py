"""The outputs of ops that make a sparse matrix."""

from typing import Any

from callboard.core.dtype import DTYPES
from callboard.core.layout import BoundedExtent, layout_of
from callboard.core.op import Op, StructOutputs
from callboard.core.operand import Placeholder
from callboard.kernel.checks import refuse
from callboard.kernel.sparse.checks import checked
from callboard.kernel.sparse.formats import AnyRef, BlockedEllRef, BsrRef, CooRef, CscRef, CsrRef

__all__ = ["FORMATS", "block_of", "result_of", "stored_block"]

FORMATS: dict[str, type[AnyRef]] = {
    "csr": CsrRef,
    "csc": CscRef,
    "coo": CooRef,
    "bsr": BsrRef,
    "blocked_ell": BlockedEllRef,
}


def stored_block(a: AnyRef) -> tuple[int, int] | None:
    """The extent of a matrix's blocks, None if it has none."""
    if isinstance(a, BlockedEllRef):
        return a.block, a.block
    return a.block if isinstance(a, BsrRef) else None


def block_of(
    op: Op[Any, Any], form: type[AnyRef], block: tuple[int, int] | None, shape: tuple[int, int]
) -> tuple[int, int]:
    """The extent of the result's blocks, ``(1, 1)`` if its format has none."""
    if form not in (BsrRef, BlockedEllRef):
        if block is not None:
            raise refuse(op, f"block is {block} and a {form.__name__} has no blocks; leave block out")
        return 1, 1
    if block is None:
        raise refuse(op, f"a {form.__name__} consists of blocks; pass block=(rows, columns)")
    if min(block) < 1 or shape[0] % block[0] or shape[1] % block[1]:
        raise refuse(op, f"block is {block}; blocks have at least one row and column, and must divide {shape}")
    if form is BlockedEllRef and block[0] != block[1]:
        raise refuse(op, f"block is {block}; those of a BlockedEllRef are square")
    return block


def result_of(
    op: Op[Any, Any],
    form: type[AnyRef],
    out: AnyRef | None,
    count: object,
    entries: "BoundedExtent | int",
    shape: tuple[int, int],
    dtypes: tuple[str, str],
    block: tuple[int, int] = (1, 1),
) -> StructOutputs:
    """The outputs of an op that makes a sparse matrix: new ones, or the given ones with room for some entries.

    Args:
        op: The message.
        form: Class of the result.
        out, count: The message's.
        entries: Number of entries; of blocks in a ``BsrRef``, of blocks in a row in a ``BlockedEllRef``.
        shape: Shape of the result.
        dtypes: The dtypes of its values and indices.
        block: Extent of its blocks.
    """
    open_ended = isinstance(entries, BoundedExtent)
    if open_ended and (out is None) is not (count is None):
        raise refuse(op, "out and count go together: an array for the entries, and one for their number")
    if not open_ended and count is not None:
        raise refuse(op, "count is given, and the number of entries is known beforehand; leave it out")
    dtype, index = (DTYPES[name] for name in dtypes)
    if out is not None:
        if type(out) is not form:
            raise refuse(op, f"out is a {type(out).__name__}, expected a {form.__name__}")
        checked(op, "out", out)
        if open_ended:
            entries = out.indices.shape[1] if isinstance(out, BlockedEllRef) else out.values.shape[0]
    rows, cols = block
    settings: dict[str, Any] = {"shape": shape}
    if form is BlockedEllRef:
        settings["block"] = rows
        width = BoundedExtent(entries.bound * cols) if isinstance(entries, BoundedExtent) else entries * cols
        made = {"values": layout_of(dtype, (shape[0], width)), "indices": layout_of(index, (shape[0] // rows, entries))}
    elif form is CooRef:
        made = {"values": layout_of(dtype, (entries,))}
        made |= {"rows": layout_of(index, (entries,)), "cols": layout_of(index, (entries,))}
    else:
        major = shape[1] if form is CscRef else shape[0] // rows
        made = {"values": layout_of(dtype, (entries, rows, cols) if form is BsrRef else (entries,))}
        made |= {"indices": layout_of(index, (entries,)), "indptr": layout_of(index, (major + 1,))}
    make: type[Any] = form
    result = make(**{name: Placeholder(layout) for name, layout in made.items()}, **settings)
    return {"out": result} if count is None else {"out": result, "count": layout_of(DTYPES["i64"], ())}
