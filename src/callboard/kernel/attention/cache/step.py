"""``KvStep``: new tokens of some sequences on their way through the layers of a model."""

from collections.abc import Callable
from typing import Any, Generic

from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.api import Submit
from callboard.kernel.attention.cache.blocks import Extension
from callboard.kernel.attention.forward import AttentionResult
from callboard.kernel.attention.paged import KvPages, PageAppend, PagedForward

__all__ = ["KvStep"]


class KvStep(Generic[Mode]):
    """New tokens of some sequences: the slots of their keys and values, and the keys visible to their queries.

    For each layer, :meth:`append` and then :meth:`attend`. When all layers are written the tokens belong to their
    sequences; until then these can do nothing else. Used on one thread.

    Attributes:
        counts: New tokens of each sequence, in the order of the sequences.
        slots: ``i64[tokens]``: where each new token goes (``PageAppend``).
        block_tables: ``i32[sequences, max_blocks]``.
        seqlens_k: ``i32[sequences]``: keys of each, the new ones included.
        cu_seqlens_q: ``i32[sequences + 1]``: where the new tokens of each begin.
    """

    def __init__(
        self,
        submit: Submit,
        pages: Callable[[int], KvPages[Mode]],
        extension: Extension,
        tables: tuple[GpuRef[Mode], GpuRef[Mode], GpuRef[Mode], GpuRef[Mode]],
        layers: int,
        ended: Callable[[Extension, bool], None],
    ) -> None:
        self.counts = tuple(request.new for request in extension.requests)
        self.slots, self.block_tables, self.seqlens_k, self.cu_seqlens_q = tables
        self._submit = submit
        self._pages = pages
        self._extension = extension
        self._unwritten = set(range(layers))
        self._ended = ended
        self._open = True

    def append(self, k: GpuRef[Mode], v: GpuRef[Mode], layer: int = 0) -> None:
        """Write the keys and values of the new tokens to the pages of a layer.

        Args:
            k: ``[tokens, kv_heads, head_dim]``, or ``[sequences, n, kv_heads, head_dim]`` if all have as many.
            v: The values, likewise.
            layer: The layer.

        Raises:
            ShapeError: They do not fit, or the layer is written already, or the step was cancelled.
            GpuRefStale: The context was lost meanwhile.
        """
        if layer not in self._unwritten or not self._open:
            raise ShapeError(
                f"layer {layer} of this step is already written or does not exist, or the step was cancelled"
            )
        keys, values = (x.reshape(-1, *x.shape[2:]) if x.ndim == 4 else x for x in (k, v))
        pages = self._pages(layer)
        self._submit(PageAppend(k=keys, v=values, k_pages=pages.k_pages, v_pages=pages.v_pages, slots=self.slots))
        self._unwritten.discard(layer)
        if not self._unwritten:
            self._open = False
            self._ended(self._extension, True)

    def attend(self, q: GpuRef[Mode], layer: int = 0, *, causal: bool = True, **settings: Any) -> AttentionResult[Mode]:
        """Attention of the new queries over all keys of their sequences in a layer.

        Args:
            q: ``[tokens, heads, head_dim]``, or ``[sequences, n, heads, head_dim]`` if all have as many.
            layer: The layer; written by :meth:`append`.
            causal: True if a query attends only to keys up to its own position.
            settings: Settings of ``attention.paged_forward``: ``softmax_scale``, ``window_size``, ``sink`` …

        Raises:
            ShapeError: The operands do not fit, or the layer is not written.
            GpuRefStale: The context was lost meanwhile.
        """
        if layer in self._unwritten:
            raise ShapeError(f"layer {layer} of this step is not written: append its keys and values first")
        pages = self._pages(layer)
        packed = q.ndim == 3
        answer: AttentionResult[Mode] = self._submit(
            PagedForward(
                q=q,
                k_pages=pages.k_pages,
                v_pages=pages.v_pages,
                block_tables=self.block_tables,
                seqlens_k=self.seqlens_k,
                cu_seqlens_q=self.cu_seqlens_q if packed else None,
                max_seqlen_q=max(self.counts) if packed else None,
                causal=causal,
                **settings,
            )
        )
        return answer

    def cancel(self) -> None:
        """Release the room and its contents. No effect if all layers are written."""
        if self._open:
            self._open = False
            self._ended(self._extension, False)
