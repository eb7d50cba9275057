"""``Cursor`` and ``passes``: the order in which data is seen, the same whenever it is asked for."""

import math
from collections.abc import Generator
from typing import NamedTuple

import msgspec

from callboard.train.batches import Batch, as_arrays
from callboard.train.running.sources import Source

__all__ = ["Cursor", "passes"]


class Cursor(msgspec.Struct, frozen=True):
    """Where a run is, in its data and in its validation.

    Attributes:
        epoch: Passes that are complete.
        batch: Batches of this pass that were seen.
        order: State of the data's random generators at the beginning of this pass; empty: it has none.
        best: Lowest value that the evaluations of a run have had.
        waited: Evaluations since that one.
        factor: Of the step size, as the evaluations want it.
    """

    epoch: int = 0
    batch: int = 0
    order: bytes = b""
    best: float = math.inf
    waited: int = 0
    factor: float = 1.0


class Read(NamedTuple):
    """What reading gave.

    Attributes:
        epoch, batch, order: Of the cursor after it.
        arrays: The batch; None: a pass has ended.
    """

    epoch: int
    batch: int
    order: bytes
    arrays: Batch | None


def passes(source: Source, start: Cursor, epochs: int, most: int) -> Generator[Read, None, None]:
    """The batches from ``start`` on.

    Args:
        source: The data.
        start: Where to begin.
        epochs: Passes in total.
        most: No further batch is read after so many.

    Raises:
        ValueError: A pass without a batch, or with more of them than the data's length says.
        Exception: What reading raised, with a note that says which batch was read.
    """
    try:
        yield from _passes(source, start, epochs, most)
    except Exception:  # of the application's data
        source.release(failed=True)
        raise
    finally:
        source.release(failed=False)


def _passes(source: Source, start: Cursor, epochs: int, most: int) -> Generator[Read, None, None]:
    epoch, seen, order, left = start.epoch, start.batch, start.order, most
    while epoch < epochs and left:
        number = seen
        try:
            order = source.begin(epoch, order)
            items = source.batches(epoch, seen)
            for number, batch in enumerate(items, seen + 1):
                arrays = as_arrays(batch)
                left -= 1
                if number == source.count:
                    if next(items, None) is not None:
                        raise ValueError(f"the data gives more batches in a pass than the {number} of its length")
                    yield Read(epoch + 1, 0, source.state(), arrays)
                    break
                yield Read(epoch, number, order, arrays)
                if not left:
                    return
            if not number:
                raise ValueError("the data has no batch")
        except Exception as error:  # of the data: it is the caller's
            error.add_note(f"while batch {number + 1} of pass {epoch + 1} over the data was read")
            raise
        epoch, seen, order = epoch + 1, 0, source.state()
        if number != source.count:
            yield Read(epoch, 0, order, None)
