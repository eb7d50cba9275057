"""``DeferredRef``: a ref whose op is submitted when something needs the array, and never if nothing does."""

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from callboard.core.layout import Layout
from callboard.core.mode import Mode
from callboard.core.ref.allocation import Allocation
from callboard.core.ref.handle import GpuRef
from callboard.core.ref.ports import RefPort
from callboard.core.reply import Reply

__all__ = ["Deferral", "Deferrals", "DeferredRef", "deferral_of"]


class Deferral(Protocol):
    """The pending computation of a deferred ref.

    Attributes:
        uses: The number of kernels that have computed it as a part of their expression.
        origin: Key of the request that it was called for, and the code and the instruction that called it.
        trace: Trace context of the request that it was called for.
        recording: The recording that was open at its call, which takes its op; None if there was none.
    """

    uses: int
    origin: Any
    trace: str | None
    recording: Any

    def message(self) -> Any:
        """The op that makes the array."""

    def made(self, ref: GpuRef[Any]) -> None:
        """The op has been submitted; ``ref`` is its result."""

    def reads(self, allocation: Allocation) -> bool:
        """True if the op would read this memory."""
        ...


class Deferrals(Protocol):
    """The deferred refs of one device.

    Attributes:
        lock: Held while pending computations are read or submitted: other threads may need the same arrays.
        recording: The open recording that takes the ops of the calling task or thread; None if there is none.
    """

    @property
    def lock(self) -> threading.RLock: ...

    @property
    def recording(self) -> Any: ...

    def accepts(self) -> bool:
        """True if an op may be deferred now."""
        ...

    def add(self, ref: "DeferredRef[Any]") -> None:
        """Add a deferred ref."""

    def submit(self, ref: GpuRef[Any]) -> None:
        """Submit the op of a ref, if that has not been done.

        Raises:
            AccelError: The op was refused at its call.
        """

    def replace(self, ref: GpuRef[Any], by: Deferral) -> bool:
        """Have a ref become something else, as a write into it does; False if its op has been submitted."""
        ...

    def before_write(self, allocation: Allocation) -> None:
        """Submit the ops that read this memory, which is about to be written or freed."""


_slot: Any = GpuRef.__dict__["allocation"]


def deferral_of(ref: GpuRef[Any]) -> Any:
    """The pending computation of a ref; None if its op has been submitted, as another thread may do at any time."""
    found = _slot.__get__(ref)
    return None if isinstance(found, Allocation) else found


def _submit(ref: GpuRef[Any]) -> None:
    """Submit the op of a ref. No method of the class: the ref may become a ``GpuRef`` between two looks at it."""
    deferrals = ref._port.deferrals
    assert deferrals is not None
    deferrals.submit(ref)


class DeferredRef(GpuRef[Mode]):
    """A ref whose op has not been submitted.

    Any use that needs its memory or outcome submits the op; the ref then becomes a ``GpuRef``.
    """

    __slots__ = ()

    def __init__(self, port: RefPort, deferral: Deferral, layout: Layout, generation: int) -> None:
        self._port = port
        self._state = 0
        self._outcome = None
        self._waiters = None
        self._op = 0
        self.layout = layout
        self.generation = generation
        self.offset = 0
        _slot.__set__(self, deferral)  # until there is an allocation

    def become(self, deferral: Deferral) -> None:
        """Take another pending computation."""
        _slot.__set__(self, deferral)

    def settle_on(self, allocation: Allocation, op: int) -> GpuRef[Mode]:
        """Become the result of an op, in this memory."""
        self._op = op
        _slot.__set__(self, allocation)
        self.__class__ = GpuRef  # type: ignore[assignment] # last: another thread may be reading `allocation`
        return self

    @property
    def allocation(self) -> Allocation:  # type: ignore[override] # of its base it is a slot
        _submit(self)
        found: Allocation = _slot.__get__(self)
        return found

    def _why_stale(self) -> str | None:
        if self._port.stopped is not None:
            return "device shutting down"
        return "context rebuilt" if self.generation != self._port.generation else None

    def done(self) -> bool:
        _submit(self)
        return Reply.done(self)

    def cancel(self) -> bool:
        _submit(self)
        return Reply.cancel(self)

    def result(self, timeout: float | None = None) -> GpuRef[Mode]:
        _submit(self)
        return Reply.result(self, timeout)

    def __await__(self) -> Iterator[Any]:  # type: ignore[override]
        _submit(self)
        return Reply.__await__(self)

    def _attach(self, future: Any) -> None:
        _submit(self)
        Reply._attach(self, future)
