"""``DeviceMemory``: whether a version fits beside the active one, and whether an unloaded one has freed its bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from callboard.actors.errors import AccelError
from callboard.patterns.contract.hooks import amount
from callboard.patterns.requests.calling import UserCall

__all__ = ["DeviceMemory", "MemoryKept"]

SLACK = 16 << 20


class MemoryKept(AccelError):
    """A version was unloaded, and the device has not got its memory back: something still refers to it.

    Attributes:
        version: Name of the version.
        expected, returned: Bytes.
    """

    def __init__(self, message: str = "", version: str = "", expected: int = 0, returned: int = 0) -> None:
        super().__init__(message)
        self.version = version
        self.expected = expected
        self.returned = returned


@dataclass(frozen=True)
class DeviceMemory:
    """The device on which versions are loaded, and the query for its free memory.

    Attributes:
        free: Bytes that are free: a function, plain (called on a thread) or async.
        slack: Bytes that may be allocated for other purposes while a version is loaded or unloaded, such as outputs of
            requests.
    """

    free: Callable[[], Any]
    slack: int = SLACK

    def __post_init__(self) -> None:
        given: Any = self.free
        if not callable(given):
            raise TypeError(f"free is {given!r}, which cannot be called")
        if self.slack < 0:
            raise ValueError(f"slack must be at least 0 bytes, but is {self.slack}")

    async def measure(self) -> int:
        """Bytes that are free now.

        Raises:
            TypeError, ValueError: ``free`` returned something else.
            Exception: Raised by ``free``.
        """
        call = UserCall(self.free, "auto", 1)
        try:
            return int(amount("free", await call()))
        finally:
            call.close()

    def lacks(self, needed: int, free: int) -> int:
        """Bytes that a version lacks with the present ones loaded; 0 if it fits."""
        return max(0, needed + self.slack - free) if needed else 0

    def kept(self, version: str, needed: int, before: int, after: int) -> MemoryKept | None:
        """The error of a version that was unloaded without releasing its memory."""
        returned = after - before
        if returned >= needed - self.slack:
            return None
        text = f"version {version!r} was unloaded and gave back {returned} of {needed} bytes; what refers to it still?"
        return MemoryKept(text, version, needed, returned)
