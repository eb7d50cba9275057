"""``Deferred``: the refs of a device whose ops have been called and not been submitted.

An op is deferred so that it can become a part of the op that reads its result. It is submitted before its absence could
have an effect: when its array is used in another way, before its operands are written or freed, and at the latest in
the next iteration of the loop if the loop's thread called it. One that is called while a recording takes the ops of its
caller is recorded in place of being submitted, at the latest when the recording's block ends.
"""

import itertools
import threading
import weakref
from collections.abc import Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast

from callboard.core.errors import AccelError
from callboard.core.ref import Allocation, Deferral, DeferredRef, GpuRef, deferral_of
from callboard.device.client.line.entries import Entry, origin_of
from callboard.events.concerns import TRACE
from callboard.events.ring import EVENTS
from callboard.kernel.recording import Recorder, recorder

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["Deferred"]

MOST = 32
"""Refs that wait when there have been twice as many: each holds the arrays that it will be computed of."""


class Deferred:
    """Serves deferred refs (:class:`Deferrals <callboard.core.ref.Deferrals>`).

    Args:
        port: Op port of the device.

    Attributes:
        live: The refs, by a number that rises; also some that have been dropped since.
        called, submitted: Number of calls that were deferred, and number of their ops that were submitted.
    """

    def __init__(self, port: "OpPort") -> None:
        self._port = port
        self._numbers = itertools.count(1)
        self.lock = threading.RLock()
        self._scheduled = False
        self.live: dict[int, weakref.ref[DeferredRef[Any]]] = {}
        self.called = 0
        self.submitted = 0

    @property
    def saved(self) -> int:
        """Kernels that were not launched: their work was part of another, or nothing needed it."""
        return self.called - self.submitted - len(self._refs())

    def accepts(self) -> bool:
        """True if an op may be deferred now. Not if it would be rejected: the error is raised at the call."""
        port = self._port
        return port.stopped is None and port.in_flight < port._room

    @property
    def recording(self) -> Recorder | None:
        """The open recording that takes the ops of the calling task or thread."""
        if not self._port.recordings:
            return None
        found = recorder.get()
        return found if found is not None and found.owns(self._port) else None

    def add(self, ref: DeferredRef[Any]) -> None:
        """Take a new one in; the oldest is submitted when there are too many."""
        deferral = deferral_of(ref)
        deferral.recording = recording = self.recording
        deferral.origin = origin_of(4)  # frames below: a function of the namespace, a helper, the call
        deferral.trace = None if EVENTS.ring is None else TRACE.get()
        self.called += 1
        number = next(self._numbers)
        ref._op = -number  # no op's id
        self.live[number] = weakref.ref(ref)
        if len(self.live) > 2 * MOST:
            self._prune(recording)
        port = self._port
        if not self._scheduled and get_ident() == port.outbox.thread:
            self._scheduled = True
            port.loop.call_soon(self._turn)

    def submit(self, ref: GpuRef[Any]) -> None:
        """Submit the op of a ref to the recording that was open at its call, or to none."""
        with self.lock:
            deferral: Deferral | None = deferral_of(ref)
            if deferral is None:
                return
            there = recorder.set(deferral.recording) if self._port.recordings else None
            within = None if EVENTS.ring is None else TRACE.set(deferral.trace)
            try:
                number = -ref._op
                self._port.submit(deferral.message(), into=cast("DeferredRef[Any]", ref))
                deferral.made(ref)
                self.live.pop(number, None)
                self.submitted += 1
            finally:
                if there is not None:
                    recorder.reset(there)
                if within is not None:
                    TRACE.reset(within)

    def replace(self, ref: GpuRef[Any], by: Deferral) -> bool:
        """Have a ref become something else; False if its op has been submitted."""
        with self.lock:
            deferral: Deferral | None = deferral_of(ref)
            if deferral is None or deferral.recording is not (recording := self.recording):
                return False
            by.recording = recording
            by.origin = origin_of(4)
            by.trace = None if EVENTS.ring is None else TRACE.get()
            cast("DeferredRef[Any]", ref).become(by)
            self.called += 1
            return True

    def before_write(self, allocation: Allocation) -> None:
        """Submit the ops that read this memory, also of the caller's recording."""
        for recording in {None, self.recording}:
            for ref in self._refs_of(recording):
                with self.lock:
                    deferral = deferral_of(ref)
                    if deferral is not None and deferral.reads(allocation):
                        self.submit(ref)

    def flush(self) -> None:
        """Submit all, the newest first: an op that became part of a kernel waits until another op needs it."""
        for ref in reversed(self._refs_of(None)):
            deferral = deferral_of(ref)  # none: it has been submitted as a part of another
            if deferral is not None and not deferral.uses:
                self.submit(ref)

    def flush_all(self, recording: Recorder | None = None) -> None:
        """Submit all, also those that became part of a kernel: their operands may be written by more than ops.

        Args:
            recording: Record those of this recording in place of submitting those of none.
        """
        for ref in reversed(self._refs_of(recording)):
            self.submit(ref)

    def lose(self) -> Iterator[Entry]:
        """Drop all refs, whose context is lost; yields the entries whose replies must fail."""
        with self.lock:
            for ref in self._refs():
                allocation = Allocation(0, self._port.outbox.released)
                allocation.freed = True  # there is no such buffer
                key, code, at = deferral_of(ref).origin
                yield Entry(weakref.ref(ref.settle_on(allocation, 0)), "elementwise.map", key, code, at, None)
            self.live.clear()

    def _refs(self) -> list[DeferredRef[Any]]:
        """The refs that are still deferred, oldest first; dropped ones are removed."""
        there = []
        for number, weak in self.live.copy().items():
            ref = weak()
            if isinstance(ref, DeferredRef):
                there.append(ref)
            elif ref is None:
                self.live.pop(number, None)
        return there

    def _refs_of(self, recording: Recorder | None) -> list[DeferredRef[Any]]:
        """The refs that were called in a recording; those of none."""
        with self.lock:  # none is submitted meanwhile
            return [ref for ref in self._refs() if deferral_of(ref).recording is recording]

    def _prune(self, recording: Recorder | None) -> None:
        """Forget the dropped ones, and submit the oldest of too many."""
        for ref in self._refs_of(recording)[:-MOST]:
            self.submit(ref)

    def _turn(self) -> None:
        self._scheduled = False
        try:
            self.flush()
        except AccelError:
            return  # raised again where the ref is used
