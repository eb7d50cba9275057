"""``Memory``: a block on the device; ``Readback``: a few bytes of it on their way to the host."""

import abc

__all__ = ["Memory", "Readback"]


class Memory:
    """A block of device memory.

    Attributes:
        address: Of its first byte, a multiple of 256.
        nbytes: Its size.
        owner: Whatever the backend needs to keep it.
        on_host: The host reads and writes it by the same address.
    """

    __slots__ = ("address", "nbytes", "on_host", "owner")

    def __init__(self, address: int, nbytes: int, owner: object = None, on_host: bool = False) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.on_host = on_host


class Readback(abc.ABC):
    """A few bytes on their way to the host, behind the work enqueued so far."""

    @abc.abstractmethod
    def take(self) -> bytes:
        """The bytes; valid once the stream has passed the copy. Called once."""
