"""``Incoming``: an array of another device, as an operand of the device that copies it."""

import contextlib
from typing import Any

import msgspec

from callboard.core.layout import Layout
from callboard.core.ref import GpuRef
from callboard.device.client.line.entries import Gate
from callboard.device.client.line.port import OpPort
from callboard.device.client.residents.line import on_loop
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import Arrived, Expect, Plain

__all__ = ["Incoming"]


class Incoming:
    """A buffer that the host does not have yet: only ops that read it wait there.

    The outcome is sent through the queue of calls. It is therefore dropped with the calls that read the buffer when the
    context is lost, and it never reaches another generation.

    Args:
        port: Op line of the device that copies.
        layout: Row-major.
        route: The two devices, for errors.
        source: Op line on which the other device answers; None if a thread of this process has the answer.

    Attributes:
        ref: The operand.
    """

    __slots__ = ("_port", "_route", "_source", "ref")

    def __init__(self, port: OpPort, layout: Layout, route: str, source: OpPort | None = None) -> None:
        self._port = port
        self._source = source
        self._route = route
        self.ref: GpuRef[Any] = GpuRef(port, port.allocation(), layout, port.generation)
        self.ref._resolve()

    def expect(self) -> None:
        """Announce it: before the ops that read it. Any thread."""
        self._port.sources[self.ref.allocation.id] = self._source
        self._say(Expect(self.ref.allocation.id))

    def arrive(self, where: list[Any]) -> None:
        """It can be read: :attr:`Arrived.where`. Any thread."""
        self._post(Arrived(self.ref.allocation.id, self.ref.nbytes, where))

    def fail(self, error: BaseException) -> None:
        """It will not arrive: its readers fail with this error. Any thread; no effect if it has arrived."""
        failure = as_failure(self.ref.allocation.id, error)
        failure = msgspec.structs.replace(failure, message=f"copy {self._route}: the source failed: {failure.message}")
        self._post(Arrived(self.ref.allocation.id, self.ref.nbytes, [], failure))

    def forget(self) -> None:
        """Nothing waits for it any more. Any thread."""
        self._port.sources.pop(self.ref.allocation.id, None)

    def _post(self, message: Plain) -> None:
        def post() -> None:
            self.forget()
            if self._port.generation == self.ref.generation and self._port.stopped is None:
                self._say(message)
                self._port.flush()

        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the device
            on_loop(self._port, post)

    def _say(self, message: Plain) -> None:
        outbox = self._port.outbox

        def post() -> None:
            if outbox.host is not None:
                outbox.host.post(message)

        outbox.hold(Gate(passed=post))
