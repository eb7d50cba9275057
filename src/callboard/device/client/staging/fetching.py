"""``Fetching``: a download in parts, into one array of the caller's."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.actors.loops.posting import post
from callboard.core.layout import Layout
from callboard.core.ref import GpuRef
from callboard.core.reply import OpFailure, Reply
from callboard.device.client.line.port import OpPort
from callboard.device.client.staging.windows import Turns, Window
from callboard.kernel.memory import Download

if TYPE_CHECKING:
    from callboard.device.client.line.transfers import Transfers

__all__ = ["Fetching"]

Array = np.ndarray[Any, Any]


class Fetching:
    """Downloads a row-major array through a window, whose memory it returns.

    Args:
        transfers: The device's transfers.
        reply: Settled with the array.
        out: The array to fill; None: a new one.
        layout: dtype and shape.
        window: Host memory.
    """

    def __init__(
        self, transfers: "Transfers", reply: "Reply[Array]", out: Array | None, layout: Layout, window: Window
    ) -> None:
        self._port: OpPort = transfers.port
        self._copy: Callable[[Array, Array, Callable[[], None]], None] = transfers.copy
        self._reply = reply
        self._array = np.empty(layout.shape, layout.dtype.np) if out is None else out
        packed = self._array if self._array.flags.c_contiguous else np.empty(layout.shape, layout.dtype.np)
        self._packed = None if packed is self._array else packed
        self._flat = packed.reshape(-1)
        self._window = window
        self._turns = Turns(self._port, window.lanes)
        self._step = window.lane // layout.dtype.itemsize
        self._left = self._parts = -(-layout.size // self._step)
        self._failure: OpFailure | None = None
        self._given_up = False

    def begin(self, source: GpuRef[Any], depth: int) -> None:
        """Call the downloads of all parts of ``source``, for which there must be room."""
        flat = source.reshape(-1) if self._parts > 1 else source
        part = -1
        kept = [_Part(self, part) for part in range(self._parts)]
        try:
            for part in range(self._parts):
                view = flat[part * self._step : (part + 1) * self._step] if self._parts > 1 else source
                region = self._window.region(self._port, part, view.layout, source.generation)
                op = Download(src=view, host=region, after=self._turns.before(part))
                self._port.submit(op, keep=kept[part], depth=depth + 1, further=True)
        except BaseException:  # Ctrl-C, too, which may come when the last of them is in flight
            self._given_up = True
            post(self._port.loop, self._give_up, kept[max(part, 0) :])
            raise

    def _give_up(self, kept: "list[_Part]") -> None:
        """Parts that were not requested get no completion. The first one may have been."""
        first, *others = kept
        if not first.ended and not self._port.unanswered.notifies(first):
            self._end(1)
        if others:
            self._end(len(others))

    def arrived(self, part: int) -> None:
        """A part is in its lane."""
        own = self._flat[part * self._step : (part + 1) * self._step]
        self._copy(own, self._window.array(part, own.dtype, own.shape), lambda: self._taken(part))

    def lost(self, part: int, failure: OpFailure) -> None:
        """A part will not arrive."""
        self._failure = self._failure or failure
        self._taken(part)

    def _taken(self, part: int) -> None:
        self._turns.ended(part)
        self._end(1)

    def _end(self, parts: int) -> None:
        self._left -= parts
        if self._left:
            return
        self._window.give()
        if self._given_up:
            return
        if self._failure is not None:
            self._reply._reject(self._failure)
        else:
            if self._packed is not None:
                self._array[...] = self._packed
            self._reply._resolve(self._array)


class _Part:
    """Notified of the completion of a part."""

    __slots__ = ("_fetch", "_part", "ended")

    def __init__(self, fetch: Fetching, part: int) -> None:
        self._fetch = fetch
        self._part = part
        self.ended = False

    def _resolve(self) -> None:
        self.ended = True
        self._fetch.arrived(self._part)

    def _reject(self, failure: OpFailure) -> None:
        self.ended = True
        self._fetch.lost(self._part, failure)
