"""The parts of a device that refs use, as protocols: a device's op line and its services."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from callboard.core.layout import Layout
from callboard.core.mode import Mode
from callboard.core.reply import ReplyPort

if TYPE_CHECKING:
    from callboard.core.ref.deferred import Deferrals
    from callboard.core.ref.handle import GpuRef

__all__ = ["Holding", "RefPort", "RefServices", "Target"]


Array = np.ndarray[Any, Any]


class RefServices(Protocol):
    """The services of a device for its refs.

    Attributes:
        blocking: True if refs wait for what is not known yet, instead of raising.
        xp: The device's array namespace.
        np: NumPy's names on the device.
    """

    blocking: bool

    @property
    def submit(self) -> Callable[..., Any]:
        """Accepts an op, as ``dev.ask`` does."""
        ...

    @property
    def xp(self) -> Any: ...
    @property
    def np(self) -> Any: ...

    def get(self, ref: "GpuRef[Any]", out: "Array | None") -> Any:
        """The array, or a reply whose value it is, as the mode of the device's refs says."""

    def preview(
        self, ref: "GpuRef[Any]", /, *, most: int | None = None, wait: bool = False, within: float | None = None
    ) -> "Array | None":
        """The first values, to be shown; None where none may be copied, or they are not there yet.

        Args:
            ref: The array.
            most: The number of values; None takes the device's ``preview``.
            wait: Wait for a small array. None of a larger one.
            within: Seconds to wait at most.
        """

    def remember(self, ref: "GpuRef[Any]", /) -> None:
        """Make the ref resolvable from its token."""

    def ordinal(self, generation: int, /) -> int:
        """The number of a generation as it is shown to people: the first one is 1."""
        ...

    def last_write_stream(self, buffer: int, /) -> int | None: ...
    def raw_device_ptr(self, ref: "GpuRef[Any]", /) -> int: ...
    @property
    def dlpack(self) -> Callable[..., Any]: ...
    def array_interface(self, ref: "GpuRef[Any]", /) -> dict[str, Any]: ...


class Holding(Protocol):
    """Makes refs of results that were computed on the host, on the calling thread."""

    def allows(self) -> float:
        """Seconds that a computation may take on the calling thread now; 0: none may run."""
        ...

    def hold(self, arrays: Sequence[Array], layouts: Sequence[Layout], seconds: float) -> "list[GpuRef[Any]]":
        """The refs of results, which took so many seconds."""
        ...

    def put(self, array: Array) -> "GpuRef[Any]":
        """Copy a result to the device."""
        ...


class Target(Protocol[Mode]):
    """A device that arrays can be copied to."""

    def put(self, array: Any, /) -> "GpuRef[Mode]": ...


class RefPort(ReplyPort, Protocol):
    """The part of a device's op line that a ref uses.

    Attributes:
        services: Of the device.
    """

    services: RefServices

    @property
    def deferrals(self) -> "Deferrals | None":
        """Refs whose ops are submitted later; None where all are submitted at once."""
        ...

    @property
    def holding(self) -> "Holding | None":
        """Makes refs of results on the host; None where all are made on the device."""
        ...

    def submit(self, op: Any, /) -> Any:
        """Accept an op; its reply at once."""
        ...

    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def generation(self) -> int:
        """The generation that ops belong to now."""
        ...

    @property
    def stopped(self) -> str | None:
        """The reason why the device takes no more work, None while it does."""
