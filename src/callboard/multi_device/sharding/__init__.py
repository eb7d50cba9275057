"""Entities distributed over devices: ownership, hand-over and passivation."""

from callboard.multi_device.sharding.entity import EntityRef
from callboard.multi_device.sharding.errors import RegionStopped
from callboard.multi_device.sharding.region import PlacementShardingAdapter
from callboard.multi_device.sharding.table import Move, ShardTable, shard_of

__all__ = ["EntityRef", "Move", "PlacementShardingAdapter", "RegionStopped", "ShardTable", "shard_of"]
