"""``Ragged``: items of unequal lengths in one array, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.core.ref.hostarrays import refuse_masked

__all__ = ["Ragged"]


@dataclass(frozen=True, eq=False)
class Ragged:
    """A batch of arrays joined along their first axis.

    Attributes:
        values: All rows of all items.
        offsets: Item ``i`` is ``values[offsets[i]:offsets[i + 1]]``. One number more than there are items, of i32, as
            kernels of ragged attention take them (``cu_seqlens``).
    """

    values: NDArray[Any]
    offsets: NDArray[np.int32]

    @classmethod
    def of(cls, items: Sequence[Any]) -> "Ragged":
        """Join arrays, or sequences of numbers, that differ in their first axis only.

        Raises:
            ValueError: They differ in more than that.
        """
        refuse_masked(items, "Ragged.of")
        arrays = [np.asarray(item) for item in items]
        offsets = np.zeros(len(arrays) + 1, np.int32)
        np.cumsum([len(each) for each in arrays], out=offsets[1:])
        return cls(np.concatenate(arrays), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        """An item, as a view."""
        at = range(len(self))[index]
        return self.values[self.offsets[at] : self.offsets[at + 1]]

    @property
    def longest(self) -> int:
        """Length of the longest item."""
        return int(np.diff(self.offsets).max(initial=0))
