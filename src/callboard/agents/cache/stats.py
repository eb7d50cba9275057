"""Figures of a cache."""

from dataclasses import dataclass

__all__ = ["EmbeddingCacheStats"]


@dataclass(frozen=True)
class EmbeddingCacheStats:
    """Figures of an :class:`EmbeddingCache`, since it was made.

    Attributes:
        hits: Texts whose vectors were there.
        misses: Texts whose vectors were computed.
        coalesced: Texts whose vectors were being computed already, or that occurred earlier in the same call.
        calls: Calls of the embedding function.
        failed: Calls that failed, or were cancelled since all their callers were.
        evicted: Entries that left since the cache was full.
        expired: Entries that were found too old.
        entries: Entries now.
        bytes: Bytes that they take, with keys.
        max_bytes: The bound of ``bytes``.
        disk_hits: Texts whose vectors were read from the :class:`EmbeddingFile`.
    """

    hits: int
    misses: int
    coalesced: int
    calls: int
    failed: int
    evicted: int
    expired: int
    entries: int
    bytes: int
    max_bytes: int
    disk_hits: int = 0

    @property
    def hit_ratio(self) -> float:
        """Part of the texts that needed no computation: hits, also on disk, and coalesced ones; 0 before the first."""
        saved = self.hits + self.disk_hits + self.coalesced
        return saved / (saved + self.misses) if saved + self.misses else 0.0
