"""Plans of the lookup of rows, and of its gradient."""

import numpy as np

from callboard.backends.cpu.dnn.arrays import Array, Plan, view_of, view_of_out, wide
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel.dnn.embedding import Embedding, EmbeddingBackward, wrong_rows

__all__ = ["backward", "checked", "forward"]


def checked(tag: str, name: str, found: Array, count: int) -> Array:
    """Return row indices after checking that all rows exist.

    Raises:
        ShapeError: One is not.
    """
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < count:
        wrong = found[(found < 0) | (found >= count)]
        raise ShapeError(wrong_rows(tag, name, int(wrong[0]), wrong.size, found.size, count))
    return found.astype(np.intp, copy=False)


@plans(Embedding)
def forward(op: Embedding) -> Plan:
    """Called with ``(table, indices, out)``."""
    view_table, view_indices, view_out, rows = (
        view_of(op.table),
        view_of(op.indices),
        view_of_out(op),
        op.table.shape[0],
    )

    def work(table: int, indices: int, out: int) -> None:
        found = checked("dnn.embedding", "indices", view_indices(indices), rows)
        view_out(out)[...] = view_table(table)[found]

    return work


@plans(EmbeddingBackward)
def backward(op: EmbeddingBackward) -> Plan:
    """Called with ``(dy, indices, dtable)``."""
    view_dy, view_indices, view_out = view_of(op.dy), view_of(op.indices), view_of_out(op, "dtable")
    width = op.dy.shape[-1]

    def work(dy: int, indices: int, dtable: int) -> None:
        found = checked("dnn.embedding_backward", "indices", view_indices(indices), op.rows).reshape(-1)
        table = view_out(dtable)
        table[...] = 0
        if not found.size or not width:
            return
        order = np.argsort(found, kind="stable")
        rows, starts, counts = np.unique(found[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(wide(view_dy(dy)).reshape(-1, width)[order], starts, axis=0)
        if op.by_frequency:
            sums /= counts[:, None].astype(sums.dtype)
        stays = rows != (-1 if op.padding is None else op.padding)
        table[rows[stays]] = sums[stays]

    return work
