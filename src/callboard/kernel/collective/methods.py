"""The methods of ``dev.collective`` whose answer is a value from the host."""

from collections.abc import Sequence

from callboard.core.mode import Mode
from callboard.core.reply import Reply
from callboard.kernel.api import Api, as_tuple
from callboard.kernel.collective.messages import Join, Look, Offer

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """A device's way into worlds; :class:`callboard.World` goes it for all ranks."""

    __slots__ = ()

    covers = frozenset({"offer", "join", "look"})

    def offer(self, world: int, rank: int, size: int) -> Reply[bytes]:
        """The address of this rank, which the other ranks connect to."""
        reply: Reply[bytes] = self._submit(Offer(world=world, rank=rank, size=size))
        return reply

    def join(self, world: int, offers: Sequence[bytes], *, timeout: float = 600.0) -> Reply[str]:
        """Begin to connect to the other ranks; answered as :meth:`look`, at once."""
        reply: Reply[str] = self._submit(Join(world=world, offers=as_tuple("offers", offers), timeout=timeout))
        return reply

    def look(self, world: int) -> Reply[str]:
        """The state of a world on this device: ``"joining"``, ``"ready"``, or the reason why it is neither."""
        reply: Reply[str] = self._submit(Look(world=world))
        return reply
