"""``DeviceRefs``: the services of a device for its refs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.core.ref import GpuRef
from callboard.device.client.line.interop import is_foreign
from callboard.device.client.tokens import Tokens
from callboard.events.exports import load
from callboard.events.once import once

if TYPE_CHECKING:
    from callboard.arrays.namespace import Namespace
    from callboard.device.client.line.interop import Interop
    from callboard.device.client.line.port import OpPort
    from callboard.device.client.line.transfers import Transfers
    from callboard.numpylike.namespace import Numpy

__all__ = ["DeviceRefs"]


class DeviceRefs:
    """Serves the refs of a device (:class:`RefServices <callboard.core.ref.RefServices>`).

    Args:
        port: Op port that creates the refs.
        transfers: Copies them to the host.
        interop: Lends their memory to other packages.
        ordinal: The number of a generation as it is shown to people.
    """

    blocking = False

    def __init__(
        self, port: "OpPort", transfers: "Transfers", interop: "Interop", ordinal: Callable[[int], int]
    ) -> None:
        self._port = port
        self._put = transfers.put
        self._tokens = Tokens(port)
        self.remember = self._tokens.remember
        self.resolve = self._tokens.resolve
        self.ordinal = ordinal
        self.submit: Callable[..., Any] = port.submit
        self._adopt = interop.adopt
        self.get = transfers.get
        self.last_write_stream = interop.last_write_stream
        self.raw_device_ptr = interop.raw_device_ptr
        self.dlpack = interop.dlpack
        self.array_interface = interop.array_interface

    @once
    def xp(self) -> "Namespace":
        """The array namespace, made on first use."""
        load("callboard.arrays.namespace")
        from callboard.arrays.namespace import Namespace  # with the messages of many libraries

        return Namespace(self._port.submit, self._upload, self._port.name)

    @once
    def np(self) -> "Numpy":
        """NumPy's names, made on first use."""
        load("callboard.numpylike.namespace")
        from callboard.numpylike.namespace import Numpy

        return Numpy(self.xp)

    def _upload(self, array: Any) -> GpuRef:
        ref: GpuRef = self._adopt(array) if is_foreign(array) else self._put(array, None, False)
        return ref

    def preview(self, ref: Any, *, most: int | None = None, wait: bool = False, within: float | None = None) -> None:
        """Return None: values of such a ref must be awaited."""
