"""A cache of keys and values in pages: who has which page (``blocks``), and the arrays they lie in (``cache``)."""

from callboard.kernel.attention.cache.blocks import BlockPool, KvCacheStats
from callboard.kernel.attention.cache.cache import KvSequence, PagedKvCache
from callboard.kernel.attention.cache.step import KvStep

__all__ = ["BlockPool", "KvCacheStats", "KvSequence", "KvStep", "PagedKvCache"]
