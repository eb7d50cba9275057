"""``GpuRef``: a generation-checked handle of an array on a device, which may not have been computed yet."""

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, NoReturn, overload

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import GpuRefStale, ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.mode import Asynchronous, Blocking, Mode
from callboard.core.operand import Operand
from callboard.core.ref.allocation import Allocation
from callboard.core.ref.html import displayed, printed, shown
from callboard.core.ref.looping import elements
from callboard.core.ref.missing import METHODS
from callboard.core.ref.naming import ABOUT_ARGUMENTS, renamed
from callboard.core.ref.operators import ArrayOperators
from callboard.core.ref.ports import RefPort, Target
from callboard.core.ref.tokens import GpuToken
from callboard.core.ref.views import BasicIndex, Index, indexed, reinterpreted, reshaped
from callboard.core.reply import Reply

__all__ = ["AccelRef", "GpuRef", "stale"]


class GpuRef(Operand, ArrayOperators[Mode], Reply["GpuRef[Mode]"], Generic[Mode]):  # type: ignore[misc] # other than a reply, it has values
    """A handle of an array on a device: an operand at once, a reply when awaited, an array to compute with.

    ``await ref`` waits for the op that writes it, raises that op's error, and gives the ref itself. Slicing gives views
    that share the memory. A ref is valid for one generation of its device's context. Operators and methods are those of
    the array API standard (:class:`ArrayOperators <callboard.core.ref.operators.ArrayOperators>`); ``dev.xp`` has the
    functions.

    Attributes:
        layout, shape, strides, dtype, ndim, size, nbytes: Known at once; strides in elements.
        offset: Bytes from the start of the allocation to element 0.
        generation: The generation that it belongs to.
    """

    __slots__ = ("allocation", "generation", "layout", "offset")

    _port: RefPort

    def __init__(
        self, port: RefPort, allocation: Allocation, layout: Layout, generation: int, offset: int = 0, op: int = 0
    ) -> None:
        # Reply.__init__ and Operand.__init__ by hand: this runs once per op
        self._port = port
        self._state = 0
        self._outcome = None
        self._waiters = None
        self.layout = layout
        self.allocation = allocation
        self.generation = generation
        self.offset = offset
        self._op = op

    def _value(self) -> "GpuRef[Mode]":
        return self

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """Name of the device, ``"cuda:0"``."""
        return self._port.name

    @property
    def device_id(self) -> str:
        """UUID of the device, also after the device was closed or its context was lost."""
        return self._port.uuid

    @property
    def is_stale(self) -> bool:
        """True if :meth:`access` would raise."""
        return self._why_stale() is not None

    @property
    def last_write_stream(self) -> int | None:
        """Id of the stream that wrote its memory last, where the device runs in this process; else None.

        None, too, for an array that was never written (``dev.empty``).

        Raises:
            GpuRefStale: See :meth:`access`.
        """
        return self._port.services.last_write_stream(self.access().allocation.id)

    def _why_stale(self) -> str | None:
        if self._port.stopped is not None:
            return "device shutting down"
        if self.generation != self._port.generation:
            return "context rebuilt"
        freed = self.allocation.freed
        return freed if type(freed) is str else "freed" if freed else None

    def access(self) -> "GpuRef[Mode]":
        """Check that the ref can be used now, and give it: device alive, generation current, not freed, in this order.

        Raises:
            GpuRefStale: With ``.reason`` ``"device shutting down"``, ``"context rebuilt"`` or ``"freed"``.
        """
        reason = self._why_stale()
        if reason is not None:
            raise stale(self, reason)
        return self

    # -- data ----------------------------------------------------------------------------------------------------------

    @overload
    def get(
        self: "GpuRef[Asynchronous]", out: "np.ndarray[Any, Any] | None" = None
    ) -> "Reply[np.ndarray[Any, Any]]": ...
    @overload
    def get(self: "GpuRef[Blocking]", out: "np.ndarray[Any, Any] | None" = None) -> "np.ndarray[Any, Any]": ...
    def get(self, out: "np.ndarray[Any, Any] | None" = None) -> "Reply[np.ndarray[Any, Any]] | np.ndarray[Any, Any]":
        """Copy it to the host, in program order: the values after all ops called before.

        Args:
            out: An array of the same shape and dtype to fill, of any strides; a new one otherwise. An array of
                ``dev.host_empty`` or of a pinned pool is filled by the device without a further copy, also rows of one
                at a pitch, in slices (``cuMemcpy2DAsync``, ``cuMemcpy3DAsync``).

        Returns:
            A reply whose value is the array, which the caller owns; of a :mod:`callboard.sync` device, the array.

        Raises:
            GpuRefStale: At the call.
            ShapeError: ``out`` does not fit; at the call.
            MailboxFull: ``max_in_flight`` ops or ``max_staged_bytes`` wait; at the call. An array above
                ``max_staged_bytes`` is transferred in parts. A :mod:`callboard.sync` device waits for room.

        Extents that its op determines are waited for first; the reply then also raises what is raised at the call.
        """
        got: Reply[np.ndarray[Any, Any]] | np.ndarray[Any, Any] = self._port.services.get(self, out)
        return got

    def to(self, device: "Target[Mode]") -> "GpuRef[Mode]":
        """A copy on another device, as a ref of that device, at once; the ref itself if the device is its own.

        The copy is made behind the op that writes this array, and before the ops called later that write it or read the
        copy; the application waits for neither. By NVLink or PCIe where one device reaches the other's memory, between
        threads of one process by address, else through arrays in shared host memory
        (:class:`callboard.P2pTopology` tells which devices reach each other).

        Args:
            device: A device of the same program.

        Returns:
            A row-major array of the same dtype and shape. It fails from this array's failure; with
            :class:`ContextPoisoned <callboard.ContextPoisoned>` when either device is lost before it is made, whose
            text names the device.

        Raises:
            GpuRefStale, MailboxFull, DeviceStopped: At the call, of either device.
            ShapeError: Its extents are not known yet: await it first.
            UnsupportedOp: One of the devices is recording.
            TypeError: ``device`` is not a device.
        """
        if getattr(device, "_port", None) is self._port:
            return self.access()
        put = getattr(device, "put", None)
        if put is None:
            raise TypeError(
                f"to: device is {type(device).__name__}; pass a callboard Device (dev.put(array) for others)"
            )
        copied: GpuRef[Mode] = put(self)
        return copied

    def free(self) -> None:
        """Give the memory back without waiting for the garbage collector.

        Later use of this ref or of a view of it raises ``GpuRefStale("freed")``; ops already called are not disturbed;
        freeing twice is harmless.
        """
        allocation = self.allocation
        if self._port.deferrals is not None:
            self._port.deferrals.before_write(allocation)
        allocation.free()

    def token(self) -> GpuToken:
        """The ref as plain data; the buffer lives as long as some ref of it does, and until its op has ended.

        Raises:
            GpuRefStale: See :meth:`access`.
        """
        self.access()
        self._port.services.remember(self)
        layout = self.layout
        return GpuToken(
            self._port.uuid,
            self.generation,
            self.allocation.id,
            self.offset,
            layout.dtype.code,
            layout.shape,
            layout.strides,
            self._op,
        )

    def raw_device_ptr(self) -> int:
        """Address of element 0 on the device. The memory stays as long as a ref of it, also after the device is closed.

        Raises:
            GpuRefStale: See :meth:`access`.
            TypeError: Process isolation: the address means nothing in this process.
        """
        return self._port.services.raw_device_ptr(self.access())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        """The values, for ``np.asarray(ref)``; of a :mod:`callboard.sync` device only.

        A copy, which is read-only, because what a library writes into it would not reach the device. ``np.array(ref)``
        and :meth:`get` give arrays to write to.

        Raises:
            TypeError: It would have to be awaited: ``await ref.get()``.
        """
        if copy is False:
            raise ValueError(f"{self.layout!r} on {self.device}: an array on the host is a copy")
        got = self._port.services.get(self, None)
        if isinstance(got, Reply):
            raise TypeError(self._misuse("array"))
        values: np.ndarray[Any, Any] = got if dtype is None else got.astype(dtype, copy=False)
        values.flags.writeable = copy is True
        return values

    def _misuse(self, what: str) -> str:
        whose = f"{what} of a GpuRef ({self.layout!r} on {self.device}), whose values are on the device: "
        there = METHODS.get(what.removeprefix("."))
        host = "copy them to the host, `await ref.get()`; with cb.sync, `ref.get()`"
        return f"{whose}compute there, `{there}`, or {host}" if there else whose + host

    def __dlpack__(
        self,
        *,
        stream: Any = ...,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = ...,
        copy: Any = ...,
    ) -> Any:
        given = {"stream": stream, "dl_device": dl_device, "copy": copy}  # consumers differ in those that they pass
        named = {name: value for name, value in given.items() if value is not ...}
        return self._port.services.dlpack(self.access(), max_version=max_version, **named)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._port.services.dlpack(self.access(), device_only=True)
        return device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._port.services.array_interface(self.access())

    # -- views ---------------------------------------------------------------------------------------------------------

    def _view(self, layout: Layout, offset: int) -> "GpuRef[Mode]":
        view: GpuRef[Mode] = GpuRef(self._port, self.allocation, layout, self.generation, offset, self._op)
        if self._state:
            view._state, view._outcome = self._state, self._outcome
        else:
            view._outcome = self  # the device settles what is held: what holds the view holds this ref
            self._attach(_Follower(view, self))
        return view

    def __getitem__(self, index: "Index | ArrayIndex[Mode]") -> "GpuRef[Mode]":
        """A view, as NumPy's basic indexing gives it (integers, slices, ``...``, None). Shares the memory.

        An index with arrays of integers, or a mask of bools, gives a copy. The number of elements that a mask selects
        depends on the data: await the result before using its shape.

        Raises:
            IndexError: Out of range, or too many indices.
            ShapeError: At the await: an array of integers holds one that is out of range.
        """
        try:
            if _holds_arrays(index):
                picked: GpuRef[Mode] = self._port.services.xp._by_arrays(self, index)
                return picked
            basic: Any = index
            layout, offset = indexed(self.layout, basic)
        except ABOUT_ARGUMENTS as e:
            renamed(e, "x[...]")
            raise
        return self._view(layout, self.offset + offset)

    def reshape(
        self, *shape: int | Sequence[int], order: Literal["C", "F", "A"] = "C", copy: bool | None = None
    ) -> "GpuRef[Mode]":
        """The elements in another shape, as ints or as one tuple; one extent may be -1.

        A view where the strides allow one, else a copy, as in NumPy. ``copy=False`` refuses the copy. ``order="F"``
        reads and writes column by column.

        Raises:
            ShapeError: Another size; or ``copy=False``, and the strides allow no view.
        """
        extents: Any = shape[0] if len(shape) == 1 else shape
        if order == "F":
            turned: GpuRef[Mode] = self._port.services.np.reshape(self, extents, order, copy=copy)
            return turned
        try:
            if not copy:
                return self._view(reshaped(self.layout, extents), self.offset)
        except ShapeError:
            if copy is False or self.layout.contiguous:
                raise
        copied: GpuRef[Mode] = self._port.services.xp.reshape(self, extents, copy=True)
        return copied

    def reinterpret(self, dtype: DTypeLike) -> "GpuRef[Mode]":
        """A view of the same bytes as another dtype, as ``ndarray.view`` gives it; the last axis is rescaled.

        Raises:
            ShapeError: 0-d or with gaps in the last axis where the element size changes; or the last axis, or the
                place of element 0, is not a multiple of the new size.
        """
        return self._view(reinterpreted(self.layout, as_dtype(dtype), self.offset), self.offset)

    @property
    def T(self) -> "GpuRef[Mode]":  # noqa: N802 - NumPy's name
        """The view with its axes reversed."""
        layout = self.layout
        return self._view(layout_of(layout.dtype, layout.shape[::-1], layout.strides[::-1]), self.offset)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d GpuRef")
        return self.shape[0]

    def __iter__(self) -> "Iterator[GpuRef[Mode]]":
        """Views along the first axis. A long loop over single elements warns, once (``RuntimeWarning``)."""
        if not self.shape:
            raise TypeError("iteration over a 0-d GpuRef")
        return elements(self) if self.ndim == 1 else (self[i] for i in range(len(self)))

    def __copy__(self) -> "GpuRef[Mode]":
        """``copy.copy(ref)``: a new array on the device, as ``dev.copy(ref)`` makes it."""
        copied: GpuRef[Mode] = self._port.services.xp.asarray(self, copy=True)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> "GpuRef[Mode]":
        """``copy.deepcopy(ref)``: likewise."""
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a GpuRef is a handle inside one process and cannot be pickled; pass ref.token() (dev.resolve gives the "
            "ref back), or its values (ref.get())"
        )

    def __repr__(self) -> str:
        """The values, as NumPy shows them, of a small array of a blocking device that is ready; else the handle."""
        return shown(self) or self._told()

    def __str__(self) -> str:
        """As :meth:`__repr__`; of a small array of a blocking device it waits, since printing is a use."""
        return printed(self) or self._told()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython, which asks the class that has ``__repr__``: :func:`callboard.core.ref.html.displayed`."""
        for number, line in enumerate(displayed(self).splitlines()):
            if number:
                printer.break_()
            printer.text(line)

    def _told(self) -> str:
        state = ("pending", "ready", "failed")[self._state]
        reason = self._why_stale()
        number = self._port.services.ordinal(self.generation)
        told = "stale: " + reason if reason else state
        return f"<GpuRef {self.layout!r} on {self.device}, generation {number}, {told}>"


IndexArray = GpuRef[Mode] | list[Any] | np.ndarray[Any, Any]
ArrayIndex = IndexArray[Mode] | tuple["BasicIndex | IndexArray[Mode]", ...]
"""An index that holds arrays."""


_ARRAYS = Operand, list, bool, np.bool_, np.ndarray


def _holds_arrays(index: Any) -> bool:
    return any(isinstance(item, _ARRAYS) for item in (index if type(index) is tuple else (index,)))


AccelRef = GpuRef
"""The ref by its backend-neutral name."""


class _Follower:
    """Settles a view together with the ref that it was taken from; keeps neither of them alive."""

    __slots__ = ("_source", "_view")

    def __init__(self, view: GpuRef[Any], source: GpuRef[Any]) -> None:
        self._view = weakref.ref(view)
        self._source = weakref.ref(source)

    def done(self) -> bool:
        view = self._view()
        return view is None or view.done()

    @property
    def _awaited(self) -> bool:
        view = self._view()
        return view is not None and view._awaited

    def set_result(self, _: None) -> None:
        view, source = self._view(), self._source()
        if view is None or source is None:
            return
        if source._state == 1:
            view._resolve()
        else:
            view._reject(source._outcome)


def stale(ref: GpuRef[Any], reason: str) -> GpuRefStale:
    """The error for a ref that cannot be used any more."""
    error = GpuRefStale(f"{ref.layout!r} on {ref.device}: {reason}", reason)
    error.device, error.generation = ref.device, ref.generation
    return error
