"""``LentCopy``: a copy that reads the other device's memory itself, by an imported handle or by its address."""

import contextlib
from typing import TYPE_CHECKING, Any

from callboard.core.ref import GpuRef
from callboard.core.reply import OpFailure
from callboard.device.client.peers.incoming import Incoming
from callboard.device.client.residents.lender import Lender
from callboard.device.client.residents.line import on_loop
from callboard.device.client.residents.loan import Loan
from callboard.kernel.memory import Copy

if TYPE_CHECKING:
    from callboard.device.client.peers.peer import Peer

__all__ = ["LentCopy"]


class LentCopy:
    """The source holds the array: later writers wait, and its memory stays, until the copy has its completion.

    Args:
        source, target: The devices.
        lender: Lends the source's arrays.
        ref: Row-major, with elements.
        route: The two devices, for errors.
    """

    def __init__(self, source: "Peer", target: "Peer", lender: Lender, ref: GpuRef[Any], route: str) -> None:
        self._source = source
        self._target = target
        self._here = lender.here
        self._route = route
        self._incoming = Incoming(target.port, ref.layout, route, source.port)
        self._loan = Loan(lender, [ref], [False], self._held, self._failed)

    def begin(self, out: GpuRef[Any] | None) -> GpuRef[Any]:
        """Take places in the orders of both devices, for which there must be room, and return the copy.

        Raises as an op; nothing is copied then.
        """
        incoming, outbox = self._incoming, self._source.port.outbox
        incoming.expect()
        try:
            self._loan.ask(f"copy {self._route}")
        except BaseException as e:  # Ctrl-C, too: the announced buffer will not arrive
            incoming.fail(e)
            raise
        try:
            outbox.flush()  # the source's host is at work while the copy is submitted
            copy: GpuRef[Any] = self._target.port.submit(Copy(src=incoming.ref, out=out), extra=self, further=True)
        except BaseException:  # likewise: nothing else ends the loan, unless the copy is in flight, which reads it
            if not self._target.port.unanswered.notifies(self):
                self._over()
            raise
        outbox.poll()  # a burst keeps the loop from the source's answers, without which no copy begins
        return copy

    def _held(self, shared: list[Any]) -> None:
        [(where, offset)], [(_, shift, *_)] = shared
        exporter = () if self._here else self._source.process
        self._incoming.arrive([where, offset + shift, *exporter])

    def _failed(self, failure: OpFailure) -> None:
        failure.cause.seen = True  # the copy has it
        self._incoming.fail(failure.cause.error(failure.op))

    def settled(self, ok: bool) -> None:
        """The copy has its completion, or the target is lost, whose process may read on until it is reaped."""
        if ok:
            self._over()
        else:
            self._target.actor.fleet.when_reaped(self._over)

    def _over(self) -> None:
        self._incoming.forget()  # a loan that ends before the source's answer has none
        with contextlib.suppress(RuntimeError):  # the source's loop is closed, and with it the source
            on_loop(self._source.port, lambda: self._loan.over(None))
