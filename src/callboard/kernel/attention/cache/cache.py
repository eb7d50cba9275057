"""``PagedKvCache``: the pages of a model's keys and values, and the sequences that have them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import GpuRefStale, ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.api import Submit
from callboard.kernel.attention.cache.blocks import BlockPool, Extension, KvCacheStats, Request
from callboard.kernel.attention.cache.step import KvStep
from callboard.kernel.attention.paged import KvPages, PageCopy
from callboard.kernel.attention.problem import FLOATS
from callboard.kernel.memory import Empty, Fill

__all__ = ["KvSequence", "PagedKvCache"]


class KvSequence:
    """A sequence in a :class:`PagedKvCache`.

    Attributes:
        number: Number of the sequence in the cache.
        epoch: The number of times the cache had been emptied when it was made.
        shared: So many of its first tokens were in the cache already; their keys and values need not be computed.
    """

    __slots__ = ("epoch", "number", "shared")

    def __init__(self, number: int, epoch: int, shared: int) -> None:
        self.number = number
        self.epoch = epoch
        self.shared = shared

    def __repr__(self) -> str:
        return f"KvSequence({self.number})"


class PagedKvCache(Generic[Mode]):
    """Keys and values of many sequences in pages: memory is taken as they grow, equal prefixes are stored once.

    ``dev.attention.kv_cache(...)`` makes one. The decisions are made in the application (:class:`BlockPool`), the pages
    and the tables that kernels read are on the device::

        cache = dev.attention.kv_cache(num_blocks=1024, num_kv_heads=8, head_dim=128, num_layers=2)
        sequence = cache.allocate(prompt)
        step = cache.step([sequence], [len(prompt) - sequence.shared], [prompt[sequence.shared :]])
        for layer in range(2):
            step.append(k[layer], v[layer], layer)
            out, lse = step.attend(q[layer], layer)

    When the context is lost, so are the pages: sequences of before are refused with ``GpuRefStale``, and the next
    :meth:`allocate` begins with an empty cache. Methods may be called from any thread.

    Args:
        submit, put: The device's functions that submit an op and copy a host array.
        num_blocks: Pages.
        num_kv_heads: Heads of keys and values.
        head_dim: Head dim of the keys.
        head_dim_v: Head dim of the values; that of the keys when None.
        block_size: Tokens in a page.
        dtype: f16, bf16, f32 or f64.
        num_layers: Layers of the model; a page is one of each.
        prefix_caching: Full pages of equal prefixes are shared.

    Raises:
        ShapeError: A number is not positive, or there is no such dtype here.
    """

    def __init__(
        self,
        submit: Submit,
        put: Callable[[Any], Any],
        num_blocks: int,
        num_kv_heads: int,
        head_dim: int,
        head_dim_v: int | None = None,
        block_size: int = 16,
        dtype: DTypeLike = "bf16",
        num_layers: int = 1,
        prefix_caching: bool = True,
    ) -> None:
        head_dim_v = head_dim if head_dim_v is None else head_dim_v
        numbers = {"num_blocks": num_blocks, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        numbers |= {"head_dim_v": head_dim_v, "block_size": block_size, "num_layers": num_layers}
        for name, number in numbers.items():
            if number < 1:
                raise ShapeError(f"{name} is {number}; it must be positive")
        if as_dtype(dtype) not in FLOATS:
            raise ShapeError(f"dtype is {as_dtype(dtype)}; it must be one of {', '.join(d.name for d in FLOATS)}")
        self.num_layers = num_layers
        self.block_size = block_size
        self._submit, self._put = submit, put
        self._shape = (num_layers, num_blocks, block_size, num_kv_heads)
        self._dims, self._dtype = (head_dim, head_dim_v), as_dtype(dtype).name
        self._sharing = prefix_caching
        self._lock = threading.RLock()
        self._epoch = -1
        self._pool = BlockPool(num_blocks, block_size, prefix_caching)
        self._arrays: tuple[GpuRef[Mode], ...] = ()
        self.reset()

    # -- sequences -----------------------------------------------------------------------------------------------------

    def allocate(self, tokens: Sequence[int] | None = None, *, salt: bytes = b"") -> KvSequence:
        """A new sequence, empty but for the pages of its prompt that are in the cache already.

        Args:
            tokens: Ids of the prompt; without them no pages are shared. At least the last one is left to be computed.
            salt: Sequences share pages only if their salts are equal (tenants, adapters).
        """
        with self._lock:
            if self._lost():
                self.reset()
            number, shared = self._pool.open(tokens, salt)
            return KvSequence(number, self._epoch, shared)

    def fork(self, sequence: KvSequence) -> KvSequence:
        """A sequence with the same tokens in the same pages; a page is copied when one of both writes to it."""
        with self._lock:
            number = self._pool.fork(self._checked(sequence))
            return KvSequence(number, self._epoch, sequence.shared)

    def truncate(self, sequence: KvSequence, length: int) -> None:
        """Truncate the sequence to a number of tokens, such as after rejected drafts."""
        with self._lock:
            self._pool.truncate(self._checked(sequence), length)

    def free(self, sequence: KvSequence) -> None:
        """Release its pages. One that was lost with its context has none; freeing it is harmless."""
        with self._lock:
            if sequence.epoch == self._epoch:
                self._pool.close(sequence.number)

    def length(self, sequence: KvSequence) -> int:
        """Tokens of a sequence that are written."""
        with self._lock:
            return self._pool.length(self._checked(sequence))

    # -- growth --------------------------------------------------------------------------------------------------------

    def step(
        self,
        sequences: Sequence[KvSequence],
        counts: int | Sequence[int] = 1,
        tokens: Sequence[Sequence[int]] | None = None,
    ) -> KvStep[Mode]:
        """Make room for new tokens: for decoding one of each sequence, for prefilling a chunk of a prompt.

        Args:
            sequences: The sequences to extend, each once.
            counts: New tokens of each, or of all.
            tokens: Ids of the new tokens; without them the pages that they fill are not shared.

        Raises:
            OutOfMemory: There are not enough pages; no sequence has changed.
            GpuRefStale: A sequence was lost with its context.
            ShapeError: The arguments do not fit, or a sequence has a step that is not written.
        """
        each = (counts,) * len(sequences) if isinstance(counts, int) else tuple(counts)
        ids = (None,) * len(sequences) if tokens is None else tuple(map(tuple, tokens))
        if not sequences or len({len(sequences), len(each), len(ids)}) > 1:
            raise ShapeError(
                f"there are {len(sequences)} sequences, {len(each)} counts and {len(ids)} lists of tokens; pass as many"
            )
        with self._lock:
            numbers = [self._checked(sequence) for sequence in sequences]
            extension = self._pool.extend(map(Request, numbers, each, ids))
            try:
                return self._step(extension)
            except BaseException:  # any exception, Ctrl-C included: release the room
                self._pool.cancel(extension)
                raise

    def _step(self, extension: Extension) -> KvStep[Mode]:
        tables = [self._pool.table(request.sequence) for request in extension.requests]
        width = 1 << (max(1, *map(len, tables)) - 1).bit_length()  # few widths, and therefore few plans
        padded = np.zeros((len(tables), width), np.int32)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = table
        counts = [request.new for request in extension.requests]
        lengths = [length + count for (_, length), count in zip(extension.before, counts, strict=True)]
        placed = (
            self._put(np.array(extension.slots, np.int64)),
            self._put(padded),
            self._put(np.array(lengths, np.int32)),
            self._put(np.cumsum([0, *counts], dtype=np.int32)),
        )
        if extension.copies:
            sources, targets = (self._put(np.array(side, np.int32)) for side in zip(*extension.copies, strict=True))
            for pages in self._layers():
                self._submit(PageCopy(k_pages=pages.k_pages, v_pages=pages.v_pages, sources=sources, targets=targets))
        epoch = self._epoch

        def ended(extension: Extension, written: bool) -> None:
            with self._lock:
                if epoch == self._epoch:
                    (self._pool.commit if written else self._pool.cancel)(extension)

        return KvStep(self._submit, self._at(self._arrays), extension, placed, self.num_layers, ended)

    # -- the whole -----------------------------------------------------------------------------------------------------

    def pages(self, layer: int = 0) -> KvPages[Mode]:
        """The pages of a layer: ``[num_blocks, block_size, num_kv_heads, head_dim]`` of keys, and of values."""
        return self._at(self._arrays)(layer)

    @property
    def stats(self) -> KvCacheStats:
        """The current contents, and the counters since the cache was made or emptied."""
        with self._lock:
            return self._pool.stats()

    def evict(self, most: int | None = None) -> int:
        """Drop pages that no sequence uses, least recently used first; return their number."""
        with self._lock:
            return self._pool.evict(most)

    def reset(self) -> None:
        """Start again with an empty cache: all sequences are dropped, and the pages are new and zero.

        After an op on the pages has failed, this makes them usable.
        """
        with self._lock:
            self._epoch += 1
            self._pool = BlockPool(self._shape[1], self.block_size, self._sharing)
            arrays = []
            for dim in self._dims:
                made = self._submit(Empty(shape=(*self._shape, dim), dtype=self._dtype))
                arrays.append(self._submit(Fill(out=made, fill_value=0.0)))
            self._arrays = tuple(arrays)

    def _lost(self) -> bool:
        return any(pages.is_stale for pages in self._arrays)

    def _checked(self, sequence: KvSequence) -> int:
        if sequence.epoch != self._epoch or self._lost():
            raise GpuRefStale(
                f"{sequence!r} is lost: the context was rebuilt or the cache was emptied since it was allocated; "
                f"allocate it again and compute its keys and values",
                "context rebuilt",
            )
        return sequence.number

    def _at(self, arrays: tuple[GpuRef[Mode], ...]) -> Callable[[int], KvPages[Mode]]:
        def pages(layer: int) -> KvPages[Mode]:
            if not 0 <= layer < self.num_layers:
                raise ShapeError(f"layer is {layer}; the cache has {self.num_layers}")
            keys, values = arrays
            return KvPages(keys[layer], values[layer])

        return pages

    def _layers(self) -> Iterator[KvPages[Mode]]:
        return map(self._at(self._arrays), range(self.num_layers))
