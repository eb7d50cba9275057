"""``staged_copy``: a copy through arenas of both devices, in chunks, so that its three steps overlap."""

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.core.layout import layout_of
from callboard.core.ref import GpuRef
from callboard.core.reply import OpFailure
from callboard.device.client.peers.incoming import Incoming
from callboard.device.client.staging.windows import Turns, Window, blocks
from callboard.kernel.memory import Copy, Download, Empty

if TYPE_CHECKING:
    from callboard.device.client.peers.peer import Peer

__all__ = ["staged_copy"]

BYTES = np.dtype("u1")


class StagedCopy:
    """A copy through a window of each device.

    Args:
        source, target: The devices.
        ref: Any strides, with elements.
        flat: The copy is row-major.
        route: The two devices, for errors.

    Raises:
        MailboxFull, OutOfMemory, DeviceStopped: There is no room; nothing is called then.
    """

    def __init__(self, source: "Peer", target: "Peer", ref: GpuRef[Any], flat: bool, route: str) -> None:
        self.source = source
        self._target = target
        self._route = route
        nbytes, itemsize = ref.nbytes, ref.dtype.itemsize
        self._flat = flat
        self._windows = [Window(source.transfers.arenas, nbytes, itemsize, flat=flat)]
        try:
            self._windows.append(Window(target.transfers.arenas, nbytes, itemsize, flat=flat))
            target.port.check_room()
            source.port.check_room()
        except BaseException:  # Ctrl-C, too: nothing else gives the memory back
            self._give()
            raise
        self._lane = min(window.lane for window in self._windows)
        self._turns = Turns(source.port, min(window.lanes for window in self._windows))
        self._lock = threading.Lock()
        self._uses = 1

    def begin(self, ref: GpuRef[Any], out: GpuRef[Any] | None) -> GpuRef[Any]:
        """Call the ops of both devices; there must be room. Raises as an op; nothing more is called then."""
        try:
            source, target = self.source.port, self._target.port
            packed: GpuRef[Any] = ref if ref.layout.contiguous else source.submit(Copy(src=ref), further=True)
            flat = self._flat
            given = packed.reshape(-1) if flat else packed
            parts = list(blocks(given.shape, ref.dtype.itemsize, self._lane))
            whole = out
            if whole is None and len(parts) > 1:
                whole = target.submit(Empty(shape=ref.shape, dtype=ref.dtype.name), further=True)
            goal = whole.reshape(-1) if whole is not None and flat else whole
            last = ref
            for part, index in enumerate(parts):
                view = given[index]
                last = self._copy(part, packed if goal is None else view, None if goal is None else goal[index])
            # The last chunk's completion includes those of the chunks before it: they wrote parts of the same buffer.
            return last if whole is None else last._view(whole.layout, whole.offset)
        finally:
            self.end()

    def _copy(self, part: int, view: GpuRef[Any], goal: GpuRef[Any] | None) -> GpuRef[Any]:
        port = self.source.port
        incoming = Incoming(self._target.port, layout_of(view.dtype, view.shape), self._route)
        region = self._windows[0].region(port, part, layout_of(view.dtype, view.shape), view.generation)
        incoming.expect()
        chunk = Chunk(self, part, incoming, [window.array(part, BYTES, (view.nbytes,)) for window in self._windows])
        self.begin_use()
        try:
            op = Download(src=view, host=region, after=self._turns.before(part))
            port.submit(op, keep=chunk, further=True)
        except BaseException as e:  # Ctrl-C, too: the announced buffer will not arrive, unless the op is in flight
            if not chunk.ended and not port.unanswered.notifies(chunk):
                incoming.fail(e)
                self.end()
            raise
        self.begin_use()
        try:
            copied: GpuRef[Any] = self._target.port.submit(Copy(src=incoming.ref, out=goal), extra=chunk, further=True)
        except BaseException:  # likewise
            if not chunk.read and not self._target.port.unanswered.notifies(chunk):
                self.end()
            raise
        return copied

    def where(self, part: int) -> list[int]:
        """Where the target reads a part."""
        return self._windows[1].where(part)

    def free(self, part: int) -> None:
        """The lanes of a part are free: the target has read it, or will not. On the target's loop."""
        self._turns.ended(part)
        self.end()

    def begin_use(self) -> None:
        """Something more uses the windows, until :meth:`end`."""
        with self._lock:
            self._uses += 1

    def end(self) -> None:
        """A use of the windows has ended. A completion alone is not enough: copies may run when a context is lost."""
        with self._lock:
            self._uses -= 1
            if self._uses:
                return
        self._give()

    def _give(self) -> None:
        for window in self._windows:
            window.give()


class Chunk:
    """A part of the array: downloaded by the source, copied from arena to arena, read there by the target."""

    __slots__ = ("_copy", "_incoming", "_lanes", "_part", "ended", "read")

    def __init__(self, copy: StagedCopy, part: int, incoming: Incoming, lanes: list[Any]) -> None:
        self._copy = copy
        self._part = part
        self._incoming = incoming
        self._lanes = lanes
        self.ended = self.read = False  # its download and its copy have had their completions

    def _resolve(self) -> None:
        self.ended = True
        here, there = self._lanes
        self._copy.source.transfers.copy(there, here, self._copied)

    def _copied(self) -> None:
        self._incoming.arrive(self._copy.where(self._part))
        self._copy.end()

    def _reject(self, failure: OpFailure) -> None:
        self.ended = True
        failure.cause.seen = True  # the copy has it
        self._incoming.fail(failure.cause.error(failure.op))
        self._copy.end()

    def settled(self, ok: bool) -> None:
        """The target has read the part, or will not."""
        self.read = True
        self._copy.free(self._part)


def staged_copy(source: "Peer", target: "Peer", ref: GpuRef[Any], out: GpuRef[Any] | None, route: str) -> GpuRef[Any]:
    """Copy ``ref``, which has elements. Raises as an op; nothing is copied then.

    The source's array may be written as soon as the data is in the arena; the array is not held for the copy.
    """
    return StagedCopy(source, target, ref, out is None or out.layout.contiguous, route).begin(ref, out)
