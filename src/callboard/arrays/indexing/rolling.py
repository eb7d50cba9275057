"""Rolls that are not computed: an element-wise function that reads one takes its elements from where they are."""

import weakref
from typing import Any

from callboard.arrays.handles import Ref
from callboard.core.layout import OpenLayout, layout_of
from callboard.core.library import Library
from callboard.core.ref import Allocation, DeferredRef, GpuRef, deferral_of
from callboard.kernel.elementwise import Map
from callboard.kernel.elementwise.promotion import ELEMENTS

__all__ = ["Rolled", "rolled"]

_serve: dict[type[Library], bool] = {}  # whether a backend's library rolls operands


class Rolled:
    """A rolled array that has not been made (:class:`callboard.core.ref.Deferral`).

    Args:
        source: The array, which has memory.
        by: Places along each axis, each less than the extent.

    Attributes:
        result: The rolled array, once it has been made.
    """

    __slots__ = ("_ref", "by", "layout", "origin", "recording", "result", "source", "trace", "uses")

    def __init__(self, source: Ref, by: tuple[int, ...]) -> None:
        self.source = source
        self.by = by
        self.layout = layout_of(source.dtype, source.shape)
        self.origin: Any = None
        self.trace: str | None = None
        self.recording: Any = None
        self.uses = 0
        self.result: Ref | None = None
        self._ref: weakref.ref[GpuRef[Any]] | None = None

    def pending_for(self, ref: Ref) -> None:
        """The ref that it becomes."""
        self._ref = weakref.ref(ref)

    def reads(self, allocation: Allocation) -> bool:
        """True if it would read this memory."""
        return self.result is None and self.source.allocation is allocation

    def message(self) -> Map:
        """The op that makes it."""
        return Map(expression="out = x0", operands=(self.source,), shifts=(self.by,))

    def made(self, ref: Ref) -> None:
        """It is this array from now on."""
        self.result = self.source = ref

    def store(self) -> Ref:
        """Return its array; has it made if there is none."""
        deferrals = self.source._port.deferrals
        assert deferrals is not None  # it is one of them
        with deferrals.lock:
            if self.result is not None:
                return self.result
            ref = None if self._ref is None else self._ref()
            if ref is None or deferral_of(ref) is not self:  # dropped, or written since
                ref = DeferredRef(self.source._port, self, self.layout, self.source.generation)
            deferrals.submit(ref)
            return ref


def rolled(x: Ref, by: tuple[int, ...]) -> Ref | None:
    """``x`` rolled by these places, deferred; None if it has to be made now.

    Args:
        x: The array.
        by: Places along each axis.
    """
    port: Any = x._port
    deferrals = port.deferrals
    if deferrals is None or not deferrals.accepts() or not x.ndim or isinstance(x.layout, OpenLayout) or not x.size:
        return None
    memory, recording = x.allocation, deferrals.recording
    if x.dtype not in ELEMENTS or x.generation != port.generation or memory.foreign:
        return None
    if memory.freed and (recording is None or not recording.makes(memory)):
        return None
    later = Rolled(x, tuple(n % extent for n, extent in zip(by, x.shape, strict=True)))
    library = port.library("elementwise")
    serves = _serve.get(library)
    if serves is None:
        serves = _serve[library] = library.why_not(later.message()) is None
    if not serves:
        return None
    ref: DeferredRef[Any] = DeferredRef(port, later, later.layout, x.generation)
    later.pending_for(ref)
    with deferrals.lock:
        deferrals.add(ref)
    return ref
