"""``Table``: the arrays of a hash map. Nothing in it changes by itself."""

import numpy as np

from callboard.device.client.handle import Device
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.hashmap.config import HashMapConfig, slots_for

__all__ = ["Table"]


class Table(Rule[HashMapConfig]):
    """Slots with ``keys`` u64 ``[slots, words]``, ``tag`` i32, ``values``; ``counts`` are keys and erased slots."""

    name = "hash map"
    steps = False

    def state(self, config: HashMapConfig) -> HostArrays:
        slots, (dtype, width) = slots_for(config.capacity), config.stored
        return {
            "keys": np.zeros((slots, config.words), "u8"),
            "tag": np.zeros(slots, "i4"),
            "values": np.zeros((slots, width), dtype),
            "counts": np.zeros(2, "i4"),
        }

    def step(self, device: Device, arrays: Arrays, config: HashMapConfig) -> None:
        raise NotImplementedError("a hash map takes no steps")
