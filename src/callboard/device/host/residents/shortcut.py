"""``Shortcut``: a call that comes alone is admitted, and answered, in one step each.

Nothing may be flying, parked or noted beside it, so that there is no order to keep. All other calls go through
:class:`CallAdmission` and :class:`CallEndings`.
"""

from typing import TYPE_CHECKING

from callboard.core.errors import DriverError, OutOfMemory, UnsupportedOp
from callboard.device.host.context.pending import Pending
from callboard.device.host.residents.item import EndedCall, Item
from callboard.device.protocol.messages import ActorCall, Completions
from callboard.device.protocol.residents.steps import CLOSING

if TYPE_CHECKING:
    from callboard.device.host.residents.actors import HostActors
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["Shortcut"]


class Shortcut:
    """The short way of calls into one host and out of it; for the actor that leads.

    Args:
        host: The host's actors.
    """

    def __init__(self, host: "HostActors") -> None:
        self._host = host

    def admit(self, actor: "ActorThread", message: object) -> Item | None:
        """Admit the only call, which names no device array, for an actor that has no other and is to run it now.

        Returns:
            The call, claimed; None if :meth:`CallAdmission.call` has to admit it, or refuse it.
        """
        host = self._host
        stage = host.stage
        if type(message) is not ActorCall or host.notes or host.serving.flying or stage is None:
            return None
        admission = stage.admission
        if (
            message.actor != actor.id
            or message.writes
            or message.shared
            or message.withdrawn
            or admission.running
            or admission.ready
            or actor.stopping
            or stage.context.parking.active
            or message.body.startswith(CLOSING)
        ):
            return None
        try:
            staged = admission.staged(message) if message.staged else None
            room = admission.room(message) if message.room else None
        except (OutOfMemory, UnsupportedOp, DriverError):
            return None
        item = Item(message, Pending(message.id, 0, None, ()), staged, room)
        admission.running[message.id] = (actor, item)
        item.claim()
        return item

    def answer(self, ended: EndedCall) -> bool:
        """Send the value of a call, if nothing is to be done before; False if it has to be settled in order.

        Raises:
            ContextPoisoned, Unrecoverable: The stream's work failed, or the context is dead.
        """
        if not self.settle(ended):
            return False
        host = self._host
        host.channel.send(Completions([], [(ended.item.message.id, ended.value)], returned=host.take_returned()))
        return True

    def settle(self, ended: EndedCall) -> bool:
        """Settle a call that has used no device array, if all that its stream was given is done.

        Only its caller can wait for such a call, so it gets no sequence number and no ledger entry.

        Returns:
            True if it is settled, so that its value may be sent. False: :meth:`CallEndings.end` has to settle it.
        """
        host = self._host
        stage = host.stage
        if host.notes or host.serving.flying or stage is None:
            return False
        item, context, timeline = ended.item, stage.context, ended.actor.timeline
        trace = context.ledger.trace
        assert timeline is not None
        if (
            ended.failure is not None
            or ended.adopted
            or item.blocks
            or item.message.shared
            or stage.endings.pending
            or context.helper.jobs
            or (trace is not None and trace.calls_left == 1)
            or not context.ledger.is_empty
            or timeline.completed < timeline.issued
            or not (stage.endings.on_host or timeline.stream.query())
        ):
            return False
        if trace is not None:
            trace.calls_left -= 1
        del stage.admission.running[item.message.id]
        return True
