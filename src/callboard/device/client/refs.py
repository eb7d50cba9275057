"""``DeviceRefs``: the services of a device for its refs."""

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.core.errors import DeviceMismatch, GpuRefStale
from callboard.core.layout import layout_from_wire
from callboard.core.ref import Allocation, GpuRef, GpuToken
from callboard.device.client.line.interop import is_foreign

if TYPE_CHECKING:
    from callboard.arrays.namespace import Namespace
    from callboard.device.client.line.interop import Interop
    from callboard.device.client.line.port import OpPort
    from callboard.device.client.line.transfers import Transfers

__all__ = ["DeviceRefs"]


class DeviceRefs:
    """Serves the refs of a device (:class:`RefServices <callboard.core.ref.RefServices>`).

    Args:
        port: Op port that creates the refs.
        transfers: Copies them to the host.
        interop: Lends their memory to other packages.
    """

    blocking = False

    def __init__(self, port: "OpPort", transfers: "Transfers", interop: "Interop") -> None:
        self._port = port
        self._put = transfers.put
        self._known: weakref.WeakValueDictionary[int, Allocation] = weakref.WeakValueDictionary()
        self.submit: Callable[..., Any] = port.submit
        self._adopt = interop.adopt
        self.get = transfers.get
        self.last_write_stream = interop.last_write_stream
        self.raw_device_ptr = interop.raw_device_ptr
        self.dlpack = interop.dlpack
        self.array_interface = interop.array_interface

    @functools.cached_property
    def xp(self) -> "Namespace":
        """The array namespace, made on first use."""
        from callboard.arrays.namespace import Namespace  # with the messages of many libraries

        return Namespace(self._port.submit, self._upload, self._port.name)

    def _upload(self, array: Any) -> GpuRef:
        ref: GpuRef = self._adopt(array) if is_foreign(array) else self._put(array, None, False)
        return ref

    def preview(self, ref: Any) -> None:
        """Return None: values of such a ref must be awaited."""

    def remember(self, allocation: Allocation) -> None:
        """Make an allocation resolvable from tokens (:meth:`GpuRef.token` calls it)."""
        self._known[allocation.id] = allocation

    def resolve(self, token: GpuToken) -> GpuRef:
        """See :meth:`Device.resolve`."""
        if not isinstance(token, GpuToken):
            raise TypeError(f"resolve: token is {type(token).__name__}; pass a GpuToken (ref.token() makes one)")
        if token.device != self._port.uuid:
            raise DeviceMismatch(f"the token names device {token.device}, this is {self._port.uuid}")
        layout = layout_from_wire(token.dtype, token.shape, token.strides)
        allocation = self._known.get(token.buffer)
        if token.generation != self._port.generation:
            raise GpuRefStale(f"token of {layout!r}: context rebuilt", "context rebuilt")
        if allocation is None or allocation.freed:
            raise GpuRefStale(f"token of {layout!r}: freed", "freed")
        ref = GpuRef(self._port, allocation, layout, token.generation, token.offset)
        ref._resolve()
        return ref
