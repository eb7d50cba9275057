"""A paged cache of keys and values: the assignment of pages (``blocks``) and the arrays that hold them (``cache``)."""

from callboard.kernel.attention.cache.blocks import BlockPool, KvCacheStats
from callboard.kernel.attention.cache.cache import KvSequence, PagedKvCache
from callboard.kernel.attention.cache.step import KvStep

__all__ = ["BlockPool", "KvCacheStats", "KvSequence", "KvStep", "PagedKvCache"]
