"""``ContextServices``: what the ``HostContext`` of a resident actor asks for."""

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.device.host.residents.item import Site
from callboard.device.host.residents.lending import Lendings
from callboard.device.host.residents.operands import Adopted
from callboard.device.host.residents.thread.coroutines import running
from callboard.device.host.residents.thread.currents import Currents
from callboard.device.protocol.residents.tensors import tensor_items
from callboard.device.protocol.residents.values import DeviceArray

if TYPE_CHECKING:
    from callboard.device.inside.device import LocalDevice

__all__ = ["ContextServices"]


class ContextServices:
    """The device as an actor's thread has it, for :class:`HostContext <callboard.HostContext>`.

    Args:
        site: Where the actor lives.
        lendings: The arrays that actors have given to the device.

    Attributes:
        make_current: Makes the stream current in packages that have been imported meanwhile (:class:`Currents`).
        local: What the present instance has as ``ctx.device``; None until it asks.
    """

    def __init__(self, site: Site, lendings: Lendings) -> None:
        self._site = site
        self._lendings = lendings
        self.make_current = Currents(site.timeline.stream, None if site.on_host else site.ordinal).make
        self.local: LocalDevice | None = None

    def device(self) -> "LocalDevice":
        """See :attr:`HostContext.device`."""
        if self.local is None:
            from callboard.device.inside.device import LocalDevice

            self.local = LocalDevice(self._site)
        return self.local

    def close_device(self) -> None:
        """The instance is gone, and its arrays and handles with it."""
        local, self.local = self.local, None
        if local is not None:
            with contextlib.suppress(Exception):  # an op of the instance that has failed, or the context is dead
                local.close()

    def is_cancelled(self) -> bool:
        """See :meth:`HostContext.cancelled`."""
        item = running.get()
        return item is not None and not item.is_wanted

    def host(self, array: Any) -> DeviceArray | np.ndarray[Any, Any]:
        """See :meth:`HostContext.host`."""
        if type(array) is np.ndarray:
            return array
        items = tensor_items(array, None if self._site.on_host else self._site.ordinal)
        return self.device().elsewhere(array) if items is None else items

    def adopt(self, array: Any) -> Adopted:
        """See :meth:`HostContext.ref`."""
        item = running.get()
        adopted = self._lendings.adopt(array, on_host=self._site.on_host)
        low, high = (adopted.block.address + adopted.offset + end for end in adopted.layout.span)
        for block, _ in item.blocks if item is not None else ():
            if low < block.address + block.nbytes and block.address < high:
                raise ValueError(
                    "ctx.ref: the array is (part of) an argument, whose memory is the caller's; return a copy, or "
                    "nothing: the caller has its ref"
                )
        return adopted
