"""The methods of ``dev.attention`` that are not messages."""

from callboard.core.dtype import DTypeLike
from callboard.core.mode import Mode
from callboard.kernel.api import Api
from callboard.kernel.attention.cache import PagedKvCache

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Attention on a device."""

    __slots__ = ()

    def kv_cache(
        self,
        num_blocks: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        head_dim_v: int | None = None,
        block_size: int = 16,
        dtype: DTypeLike = "bf16",
        num_layers: int = 1,
        prefix_caching: bool = True,
    ) -> PagedKvCache[Mode]:
        """Keys and values of many sequences in pages. See :class:`PagedKvCache`."""
        return PagedKvCache(
            self._submit,
            self._put,
            num_blocks,
            num_kv_heads,
            head_dim,
            head_dim_v,
            block_size,
            dtype,
            num_layers,
            prefix_caching,
        )
