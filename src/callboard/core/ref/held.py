"""``HeldRef``: a ref whose values are known on the host, and are copied to the device when something needs them there.

What computes on arrays of the host in this process has its results there. Most callers only read them (``ref.get()``):
a copy to the device and another one back would cost many times a small computation.
"""

import threading
from typing import Any

import numpy as np

from callboard.core.layout import Layout
from callboard.core.mode import Mode
from callboard.core.ref.allocation import Allocation
from callboard.core.ref.handle import GpuRef
from callboard.core.ref.ports import RefPort
from callboard.core.reply import DONE, PENDING

__all__ = ["HeldRef", "held_array", "held_by"]

Array = np.ndarray[Any, Any]
_slot: Any = GpuRef.__dict__["allocation"]
_lock = threading.RLock()
"""Held while a ref gets its memory: another thread may need it, too."""


class _Nowhere:
    """Takes the id of a buffer that never existed."""

    def append(self, id: int, /) -> None:
        """Do nothing."""


def held_by(port: RefPort, ref: Any) -> Array | None:
    """As :func:`held_array`, for a ref that ops of a device may read now; None for those that they refuse."""
    if type(ref) is not HeldRef or ref._port is not port or ref._why_stale() is not None:
        return None
    return held_array(ref)


def held_array(ref: Any) -> Array | None:
    """The values of a ref that are on the host only, not to be written; None where the device has them, or it is freed.

    Another thread may cause them to be copied at any time.
    """
    if type(ref) is not HeldRef:
        return None
    held = _slot.__get__(ref)
    return held if type(held) is np.ndarray else None


class HeldRef(GpuRef[Mode]):
    """A ref whose values are on the host.

    Any use of its memory copies them to the device, before the op that uses them; the ref then becomes a ``GpuRef``.

    Args:
        port: Port of the device.
        array: The values, row-major, which nothing writes any more.
        layout: dtype and shape.
        generation: The generation that it belongs to.
        done: False: the caller resolves it later.
    """

    __slots__ = ()

    def __init__(self, port: RefPort, array: Array, layout: Layout, generation: int, done: bool = True) -> None:
        self._port = port
        self._state = DONE if done else PENDING
        self._outcome = None
        self._waiters = None
        self._op = 0
        self.layout = layout
        self.generation = generation
        self.offset = 0
        _slot.__set__(self, array)  # until there is an allocation; None once it is freed

    @property
    def allocation(self) -> Allocation:  # type: ignore[override] # of its base it is a slot
        with _lock:
            held = _slot.__get__(self)
            if isinstance(held, Allocation):  # another thread was faster
                return held
            reason = self._why_stale()
            if reason is not None:  # who asked finds it stale
                none = Allocation(0, _Nowhere())
                none.freed = reason
                return none
            holding = self._port.holding
            assert holding is not None, "who holds results made it"
            copied = holding.put(held)
            self._op = copied._op
            _slot.__set__(self, copied.allocation)
            self.__class__ = GpuRef  # type: ignore[assignment] # last: another thread may be reading `allocation`
            return copied.allocation

    def _why_stale(self) -> str | None:
        if self._port.stopped is not None:
            return "device shutting down"
        if self.generation != self._port.generation:
            return "context rebuilt"
        return "freed" if _slot.__get__(self) is None else None

    def free(self) -> None:
        with _lock:
            if not isinstance(_slot.__get__(self), Allocation):
                _slot.__set__(self, None)
                return
        super().free()
