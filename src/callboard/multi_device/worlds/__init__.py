"""Collectives over several devices."""

from callboard.multi_device.worlds.errors import WorldStopped
from callboard.multi_device.worlds.group import Group
from callboard.multi_device.worlds.opening import OpenWorld, world
from callboard.multi_device.worlds.reply import Collective
from callboard.multi_device.worlds.requests import PreMulSum
from callboard.multi_device.worlds.stats import WorldHealth, WorldStats
from callboard.multi_device.worlds.world import World

__all__ = [
    "Collective",
    "Group",
    "OpenWorld",
    "PreMulSum",
    "World",
    "WorldHealth",
    "WorldStats",
    "WorldStopped",
    "world",
]
