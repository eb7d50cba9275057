"""Arrays at addresses as tensors: dtype, shape and strides over a block's bytes."""

from typing import TYPE_CHECKING

from callboard.backends.torch.conversion import moved_by
from callboard.backends.torch.vendor import Tensor, held_as, torch
from callboard.core.layout import Layout

if TYPE_CHECKING:
    from callboard.backends.torch.device import TorchDevice

__all__ = ["View"]


class View:
    """An array of a layout, wherever it lies. PyTorch has no negative strides: such axes are reversed on the way.

    Args:
        device: The device.
        layout: dtype, shape, strides.
        host: The array is in host memory.
    """

    __slots__ = ("_device", "_dtype", "_host", "_low", "_nbytes", "_shape", "_strides", "_turned", "layout")

    def __init__(self, device: "TorchDevice", layout: Layout, host: bool = False) -> None:
        self.layout = layout
        self._device = device
        self._dtype = held_as(layout.dtype)
        self._shape = layout.shape
        self._strides = tuple(map(abs, layout.strides))
        self._turned = [axis for axis, step in enumerate(layout.strides) if step < 0] if layout.size else []
        self._host = host
        low, high = layout.span
        self._low, self._nbytes = low, high - low

    def at(self, address: int) -> Tensor:
        """The tensor over the memory at the address of element 0; reads nothing."""
        if not self.layout.size:
            where = "cpu" if self._host else self._device.torch_device
            return torch.empty(self._shape, dtype=self._dtype, device=where)
        if self._host:
            octets, start = self._device.host_octets(address + self._low, self._nbytes), address + self._low
        else:
            octets, start = self._device.block_at(address + self._low, self._nbytes)
        elements = octets.view(self._dtype)
        offset = elements.storage_offset() + (address + self._low - start) // self.layout.dtype.itemsize
        return torch.as_strided(elements, self._shape, self._strides, offset)

    def read(self, there: Tensor) -> Tensor:
        """The array in the order of its layout."""
        return self._reversed(there) if self._turned else there

    def write(self, there: Tensor, value: Tensor) -> None:
        """Store an array of the same shape, converted; into the first places of each axis if it is smaller."""
        if value.shape != self._shape:
            there = there[tuple(slice(n) for n in value.shape)]
        there.copy_(self._reversed(value) if self._turned else value)

    def _reversed(self, x: Tensor) -> Tensor:
        return moved_by(lambda bits: bits.flip(self._turned), x)
