"""Arenas: host memory that the application and a context host share, and the pool that allocates slots in it."""

from callboard.device.protocol.arena.memory import Arena
from callboard.device.protocol.arena.pool import ArenaPool, ArenaStats, Slot, is_leased

__all__ = ["Arena", "ArenaPool", "ArenaStats", "Slot", "is_leased"]
