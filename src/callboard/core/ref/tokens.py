"""``GpuToken``: a ref as plain data."""

import msgspec

__all__ = ["INSTEAD_OF_PICKLING", "GpuToken"]

INSTEAD_OF_PICKLING = (
    "send arrays as their values (ref.get()), open the device there (cb.device), or inside one process pass "
    "ref.token(), which dev.resolve takes"
)
"""Advice for a handle of a device, which is not a ref."""


class GpuToken(msgspec.Struct, frozen=True, array_like=True):
    """A ref as plain data, for another actor or a journal; ``dev.resolve(token)`` gives the ref back.

    Attributes:
        device: UUID of the device.
        generation: The generation that the buffer belongs to.
        buffer: Id of the allocation.
        offset: Bytes from its start to element 0.
        dtype: Wire code of the dtype.
        shape, strides: Layout, strides in elements.
        op: Id of the op that writes the ref; 0 for a ref that no op of the application has written.
    """

    device: str
    generation: int
    buffer: int
    offset: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    op: int = 0
