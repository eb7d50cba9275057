"""``ShardTable``: which device owns which shard, and how few shards move when devices come and go. Pure.

Each device ranks each shard by weighted rendezvous hashing (Thaler and Ravishankar 1998; weights by Schindelhauer and
Schomaker 2005), and no device owns more than ``BOUND`` times its share (bounded loads: Mirrokni, Thorup and
Zadimoghaddam 2018). A new table is made from the one before, so a shard moves only if its device has gone or has too
many, or if another device has too few. Hashes are BLAKE2b's, equal in all processes and versions of Python.
"""

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["BOUND", "Move", "ShardTable", "check_weights", "shard_of"]

BOUND = 1.1
"""No device owns more than this times its share of the shards, nor, after a change, less than its share over this."""


@dataclass(frozen=True, slots=True)
class Move:
    """A shard that changes its owner; ``source`` is None if it had none."""

    shard: int
    source: str | None
    target: str


@dataclass(frozen=True, slots=True)
class ShardTable:
    """Owners of shards.

    Attributes:
        owners: The id of each shard's device, in the order of the shards; None if there is no device.
        version: Grows with each change, so that of two tables the newer is known.
    """

    owners: tuple[str | None, ...]
    version: int = 0

    @staticmethod
    def empty(shards: int) -> "ShardTable":
        """A table without devices.

        Raises:
            ValueError: Fewer than one shard.
        """
        if shards < 1:
            raise ValueError(f"shards must be at least 1, but is {shards}")
        return ShardTable((None,) * shards)

    def over(self, weights: Mapping[str, float]) -> "ShardTable":
        """The next table, over these devices.

        Args:
            weights: Weights by id of the device; a device owns shards in proportion.

        Raises:
            ValueError: A weight that is not a positive number.
        """
        check_weights(weights)
        if not weights:
            return ShardTable((None,) * len(self.owners), self.version + 1)
        shares = {device: len(self.owners) * weight / sum(weights.values()) for device, weight in weights.items()}
        owners = [owner if owner in weights else None for owner in self.owners]
        load = Counter(dict.fromkeys(weights, 0))
        load.update(owner for owner in owners if owner is not None)
        _place(owners, load, weights, shares)
        _fill(owners, load, weights, shares)
        _shed(owners, load, weights, shares)
        return ShardTable(tuple(owners), self.version + 1)

    def moves_to(self, later: "ShardTable") -> list[Move]:
        """The handovers needed to reach a later table, in the order of the shards."""
        pairs = zip(self.owners, later.owners, strict=True)
        return [Move(shard, a, b) for shard, (a, b) in enumerate(pairs) if a != b and b is not None]


def check_weights(weights: Mapping[str, float]) -> None:
    """Raise ``ValueError`` if a weight is not a positive number."""
    for device, weight in weights.items():
        if not 0 < weight < math.inf:
            raise ValueError(f"the weight of {device} must be a positive number, but is {weight}")


def shard_of(entity: str, shards: int) -> int:
    """The shard of an entity, by its id; the same in every process."""
    return int.from_bytes(blake2b(entity.encode(), digest_size=8).digest(), "little") % shards


@functools.lru_cache(1 << 16)
def _rank(shard: int, device: str, weight: float) -> float:
    """The preference of a device for a shard."""
    drawn = int.from_bytes(blake2b(f"{shard} {device}".encode(), digest_size=8).digest(), "little")
    return -weight / math.log((drawn + 1) / (2**64 + 1))


def _most(share: float) -> int:
    return max(math.ceil(share), math.floor(BOUND * share))


def _place(
    owners: list[str | None], load: Counter[str], weights: Mapping[str, float], shares: Mapping[str, float]
) -> None:
    """Assign shards without an owner to the device with the strongest preference that has room."""
    for shard, owner in enumerate(owners):
        if owner is None:
            room = [device for device in weights if load[device] < _most(shares[device])]
            target = max(room, key=lambda device: _rank(shard, device, weights[device]))
            owners[shard] = target
            load[target] += 1


def _fill(
    owners: list[str | None], load: Counter[str], weights: Mapping[str, float], shares: Mapping[str, float]
) -> None:
    """Give devices with too few shards those that they prefer most, from the devices that exceed their share most."""
    while True:
        poor = min(weights, key=lambda device: load[device] - math.floor(shares[device] / BOUND))
        if load[poor] >= math.floor(shares[poor] / BOUND):
            return
        rich = max(weights, key=lambda device: load[device] / shares[device])
        _hand_over(owners, load, rich, poor, weights[poor])


def _shed(
    owners: list[str | None], load: Counter[str], weights: Mapping[str, float], shares: Mapping[str, float]
) -> None:
    """Move shards from devices that have too many to the device with the most room, by its preference."""
    while True:
        rich = max(weights, key=lambda device: load[device] - _most(shares[device]))
        if load[rich] <= _most(shares[rich]):
            return
        poor = min(weights, key=lambda device: load[device] / shares[device])
        _hand_over(owners, load, rich, poor, weights[poor])


def _hand_over(owners: list[str | None], load: Counter[str], source: str, target: str, weight: float) -> None:
    shard = max((s for s, owner in enumerate(owners) if owner == source), key=lambda s: _rank(s, target, weight))
    owners[shard] = target
    load[source] -= 1
    load[target] += 1
