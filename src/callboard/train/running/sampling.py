"""``Cursor`` and ``batches``: the order in which a data set is seen, the same whenever it is asked for."""

from collections.abc import Iterator

import msgspec
import numpy as np

from callboard.train.batches import Batch, part, rows_of

__all__ = ["Cursor", "batches"]


class Cursor(msgspec.Struct, frozen=True):
    """Where in the data training is.

    Attributes:
        epoch: Passes that are complete.
        batch: Batches of this pass that were seen.
    """

    epoch: int = 0
    batch: int = 0


def batches(
    data: Batch, batch_size: int, epochs: int, start: Cursor, seed: int, shuffle: bool
) -> Iterator[tuple[Cursor, Batch]]:
    """The batches from ``start`` on, each with the cursor after it.

    Args:
        data: All samples, as one batch.
        batch_size: Samples of a batch; the last one of a pass may have fewer.
        epochs: Passes in total.
        start: Where to begin.
        seed: With the number of the pass, it decides the order.
        shuffle: A new order in each pass; else that of the data.
    """
    rows = rows_of(data)
    count = -(-rows // batch_size)
    for epoch in range(start.epoch, epochs):
        order = np.random.default_rng([seed, epoch]).permutation(rows) if shuffle else np.arange(rows)
        for batch in range(start.batch if epoch == start.epoch else 0, count):
            after = Cursor(epoch, batch + 1) if batch + 1 < count else Cursor(epoch + 1, 0)
            yield after, part(data, order[batch * batch_size : (batch + 1) * batch_size])
