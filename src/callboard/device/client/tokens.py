"""``Tokens``: the refs of a device that tokens stand for."""

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from callboard.core.errors import DeviceMismatch, GpuRefStale, ShapeError
from callboard.core.layout import Layout, layout_from_wire
from callboard.core.ref import Allocation, GpuRef, GpuToken
from callboard.core.reply import DONE, FAILED, OpFailure

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["Tokens"]

_KINDS = {"device": str, "generation": int, "buffer": int, "offset": int, "dtype": int, "op": int}


class Tokens:
    """Makes refs of tokens again. Any thread.

    Args:
        port: Op port that creates the refs.
    """

    def __init__(self, port: "OpPort") -> None:
        self._port = port
        self._lock = threading.Lock()
        self._known: weakref.WeakValueDictionary[int, Allocation] = weakref.WeakValueDictionary()
        self._ends: weakref.WeakKeyDictionary[Allocation, int] = weakref.WeakKeyDictionary()  # bytes that refs reach
        self._pending: dict[tuple[int, int], GpuRef[Any]] = {}  # by op and buffer
        self._failed: weakref.WeakKeyDictionary[Allocation, dict[int, OpFailure]] = weakref.WeakKeyDictionary()

    def remember(self, ref: GpuRef[Any]) -> None:
        """Make a ref resolvable from its token (:meth:`GpuRef.token` calls it)."""
        allocation = ref.allocation
        self._known[allocation.id] = allocation
        end = ref.offset + ref.layout.span[1]
        with self._lock:
            self._ends[allocation] = max(end, self._ends.get(allocation, -1))
        key = ref._op, allocation.id
        if ref._state != DONE and key not in self._pending:
            self._pending[key] = ref
            ref.when_done(functools.partial(self._ended, key))

    def _ended(self, key: tuple[int, int]) -> None:
        ref = self._pending.get(key)
        if ref is not None and ref._state == FAILED:
            self._failed.setdefault(ref.allocation, {})[key[0]] = ref._outcome
        self._pending.pop(key, None)  # last: another thread may be looking

    def resolve(self, token: GpuToken) -> GpuRef[Any]:
        """See :meth:`Device.resolve`."""
        if not isinstance(token, GpuToken):
            raise TypeError(f"resolve: token is {type(token).__name__}; pass a GpuToken (ref.token() makes one)")
        for name, kind in _KINDS.items():
            value = getattr(token, name)
            if type(value) is not kind:
                raise TypeError(f"resolve: token.{name} is {value!r:.80}; it is of type {kind.__name__}")
        if token.device != self._port.uuid:
            raise DeviceMismatch(f"the token names device {token.device}, this is {self._port.uuid}")
        try:
            layout = layout_from_wire(token.dtype, token.shape, token.strides)
        except (TypeError, ValueError) as e:
            raise ShapeError(f"resolve: the token is not of an array: {e}") from None
        if token.generation != self._port.generation:
            raise GpuRefStale(f"token of {layout!r}: context rebuilt", "context rebuilt")
        allocation = self._known.get(token.buffer)
        if allocation is None or allocation.freed:
            raise GpuRefStale(f"token of {layout!r}: freed", "freed")
        self._check_place(token.offset, layout, self._ends.get(allocation, 0))
        pending = self._pending.get((token.op, allocation.id))
        if pending is not None:
            return pending._view(layout, token.offset)
        ref: GpuRef[Any] = GpuRef(self._port, allocation, layout, token.generation, token.offset, token.op)
        failure = self._failed.get(allocation, {}).get(token.op)
        if failure is None:
            ref._resolve()
        else:
            ref._reject(failure)
        return ref

    def _check_place(self, offset: int, layout: Layout, end: int) -> None:
        if offset % layout.dtype.itemsize:
            raise ShapeError(
                f"resolve: offset {offset} of {layout!r} is not a multiple of {layout.dtype.itemsize} bytes, the size "
                "of an element; no ref has such a token"
            )
        low, high = (offset + bound for bound in layout.span)
        if low < 0 or high > end:
            raise ShapeError(
                f"resolve: {layout!r} at offset {offset} reaches bytes {low} to {high}, and the tokens of the buffer "
                f"were made of refs to bytes 0 to {end}"
            )
