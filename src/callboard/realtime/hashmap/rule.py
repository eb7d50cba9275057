"""``Table``: the arrays of a hash map. Nothing in it changes by itself."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.device.client.handle import Device
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.hashmap.config import HashMapConfig, slots_for
from callboard.realtime.hashmap.plain import EMPTY, USED

__all__ = ["Table"]


class Table(Rule[HashMapConfig]):
    """Slots with ``keys`` u64 ``[slots, words]``, ``tag`` i32, ``values``; ``counts`` are keys and erased slots.

    On a CPU values are behind their keys, in the rows of ``keys``, since each array is another wait for memory;
    ``values`` is a single row then, for its dtype and width.

    Args:
        joined: Whether it is for a CPU.
    """

    name = "hash map"
    steps = False

    def __init__(self, joined: bool) -> None:
        self._joined = joined

    def state(self, config: HashMapConfig) -> HostArrays:
        return self.empty(config, slots_for(config.capacity))

    def empty(self, config: HashMapConfig, slots: int) -> HostArrays:
        """A table of this size without keys."""
        dtype, width = config.stored
        behind = -(-width * np.dtype(dtype).itemsize // 8) if self._joined else 0
        return {
            "keys": np.zeros((slots, config.words + behind), "u8"),
            "tag": np.zeros(slots, "i4"),
            "values": np.zeros((1 if self._joined else slots, width), dtype),
            "counts": np.zeros(2, "i4"),
        }

    def contents(self, config: HashMapConfig, state: HostArrays) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """Words and values of the keys in a table, in no order."""
        keys, tag, (dtype, width) = state["keys"], state["tag"], config.stored
        words, used = keys[:, : config.words], tag == USED
        if not self._joined:
            return words[used], state["values"][used]
        used |= (tag == EMPTY) & (words != 0).any(1) & (words != np.uint64(0xFFFFFFFFFFFFFFFF)).any(1)
        rows = keys[used]
        return rows[:, : config.words], rows[:, config.words :].view(dtype)[:, :width]

    def step(self, device: Device, arrays: Arrays, config: HashMapConfig) -> None:
        raise NotImplementedError("a hash map takes no steps")
