"""``Holding``: results that were computed on the host, as refs of a device in this process."""

from collections.abc import Sequence
from threading import get_ident
from typing import Any

import numpy as np

from callboard.core.layout import Layout
from callboard.core.ref import GpuRef, HeldRef
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.transfers import Transfers
from callboard.events.ring import EVENTS
from callboard.kernel.recording import recorder

__all__ = ["Holding"]

Array = np.ndarray[Any, Any]

SHORT = 1e-3
"""Seconds of a computation that may run on the loop's thread."""
LONG = 1e-2
"""The same on another thread, which only its caller waits for: Ctrl-C comes when it has ended."""
TURN = 5e-3
"""Seconds of such computations after which the loop gets an iteration."""


class Holding:
    """Says when results may be computed on the calling thread, and makes refs of them.

    Only what neither reads nor writes memory of the device is computed so. It is then in no order with other ops, and
    needs neither a message nor the host.

    Args:
        port: Op port of the device.
        transfers: Copies results to the device that are needed there.
        traced: See below.

    Attributes:
        traced: The host records what happens to ops.
    """

    def __init__(self, port: OpPort, transfers: Transfers, traced: bool) -> None:
        self._port = port
        self._transfers = transfers
        self.traced = traced
        self._spent = 0.0
        self._scheduled = False

    def allows(self) -> float:
        """Seconds that a computation may take on the calling thread now; 0: none may run.

        None does while what happens to ops is recorded or traced, and while the device has no context: it is an op
        then. Nor after the calls of one iteration of the loop have taken 5 ms.
        """
        port = self._port
        outbox = port.outbox
        if port.stopped is not None or outbox.host is None or port.recordings or self.traced or EVENTS.ring is not None:
            return 0.0
        if get_ident() != outbox.thread:
            return LONG
        return SHORT if self._spent < TURN else 0.0

    def hold(self, arrays: Sequence[Array], layouts: Sequence[Layout], seconds: float) -> list[GpuRef[Any]]:
        """The refs of results.

        Args:
            arrays: The results, row-major, which nothing else writes.
            layouts: Their layouts.
            seconds: What they have taken.
        """
        port = self._port
        done = True
        if get_ident() == port.outbox.thread:
            self._spent += seconds
            if not self._scheduled:
                self._scheduled = True
                port.loop.call_soon(self._turn)
            done = self._spent < TURN
        generation = port.generation
        refs: list[GpuRef[Any]] = [
            HeldRef(port, array, layouts[at], generation, done) for at, array in enumerate(arrays)
        ]
        if not done:  # awaiting one after the other must not starve other tasks
            for ref in refs:
                port.loop.call_soon(ref._resolve)
        return refs

    def put(self, array: Array) -> GpuRef[Any]:
        """Copy a result to the device, outside of any recording: it was computed before.

        Raises:
            MailboxFull, DeviceStopped: The device takes no more ops.
        """
        token = recorder.set(None)
        try:
            return self._transfers.put(array, None, False)
        finally:
            recorder.reset(token)

    def _turn(self) -> None:
        self._scheduled = False
        self._spent = 0.0
