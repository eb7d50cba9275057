"""Sorts, all by CUB's radix sort but for :class:`~callboard.kernel.cub.MergeSort`.

A line is sorted as it is, and its NaNs are put into their places behind that (:mod:`callboard.backends.cuda.cub.nans`).
Rows and segments are sorted all at once, their elements beside indices, and these once more by row: CUB's own segmented
sort copies to the host and waits between its kernels, which a launch must not.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cuda.cub.arguments import CubArgs, element_kernel, move_kernel
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.cub.nans import Nans
from callboard.backends.cuda.cub.plan import index_name, result_layout, storage
from callboard.backends.cuda.cub.texts import comparison, no_text
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Span, Work, nothing
from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel import cub

__all__ = ["Gather", "argsort", "merge_sort", "segmented_sort", "sort", "sort_pairs", "top_k"]

FEW_ROWS, LONG_ROW = 32, 1 << 16
"""Rows that are sorted one by one, by the whole GPU each."""
PLAIN = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""The unsigned type used to move values with their keys, by size; values of other sizes are taken by indices."""

Run = Callable[[int], None]


def _order_of(cccl: Cccl, descending: bool) -> Any:
    orders = cccl.compute.SortOrder
    return orders.DESCENDING if descending else orders.ASCENDING


class Keys:
    """Keys in the form that the radix sort requires: row-major, every NaN with the same bits."""

    def __init__(self, cccl: Cccl, memory: PlanMemory, layout: Layout) -> None:
        self.span = Span(storage(layout))
        self._bring = memory.brought(layout)
        self._own = memory.take(layout.nbytes) if layout.dtype.is_float else None
        self._args = CubArgs(n=layout.size)
        self._clean = (
            element_kernel(cccl.device, "canonical", layout.dtype, self._args, linear_grid(layout.size))
            if layout.dtype.is_float
            else None
        )
        self.given = 0  # address of the keys, row-major, otherwise unchanged

    def __call__(self, native: int, at: int) -> None:
        self.given = self.span.ptr = self._bring(native, at)
        if self._clean is not None and self._own is not None:
            self._args.a, self._args.out = self.given, self._own.ptr
            self._clean(native)
            self.span.ptr = self._own.ptr


class Ordering:
    """The indices that sort the elements of each row, counted through all rows.

    Args:
        cccl: Builds.
        memory: Memory of the plan.
        keys: Keys to sort.
        layout: Layout of the keys.
        descending: True for descending order.
        groups: Number of rows or segments.
        group: Enqueues the writing of each index's group: ``(native, indices, groups' address)``; None: one group.

    Attributes:
        index: dtype of the indices.
        order: The indices, after the call.
    """

    def __init__(
        self,
        cccl: Cccl,
        memory: PlanMemory,
        keys: Keys,
        layout: Layout,
        descending: bool,
        groups: int = 1,
        group: Callable[[int, int, int], None] | None = None,
    ) -> None:
        n = layout.size
        self.index = index_name(n)
        kind = DTYPES[self.index].np
        self._first, self.order = memory.take_items(n, kind), memory.take_items(n, kind)
        self._group = group if groups > 1 else None
        sorted_keys = memory.take(n * layout.dtype.itemsize, storage(layout))
        self._args = CubArgs(n=n)
        self._iota = move_kernel(cccl.device, f"iota_{self.index}", n, self._args)
        self._by_key = cccl.step(
            memory, "radix_sort", {"order": _order_of(cccl, descending)}, {"num_items": n}, d_in_keys=keys.span,
            d_out_keys=sorted_keys, d_in_values=self._first, d_out_values=self.order,
        )  # fmt: skip
        if self._group is not None:
            self._groups, sorted_groups = memory.take_items(n, np.uint32), memory.take_items(n, np.uint32)
            run = {"num_items": n, "begin_bit": 0, "end_bit": max(1, (groups - 1).bit_length())}
            self._by_group = cccl.step(
                memory, "radix_sort", {"order": _order_of(cccl, False)}, run,
                d_in_keys=self._groups, d_out_keys=sorted_groups, d_in_values=self.order, d_out_values=self._first,
            )  # fmt: skip

    def __call__(self, native: int) -> int:
        """Enqueue it, after the keys; the address where the indices will be."""
        self._args.out = self._first.ptr
        self._iota(native)
        self._by_key(native)
        if self._group is None:
            return self.order.ptr
        self._group(native, self.order.ptr, self._groups.ptr)
        self._by_group(native)
        return self._first.ptr


class Gather:
    """Elements taken by their indices.

    Args:
        cccl: Has the device.
        memory: Memory of the plan.
        src: Layout of the elements.
        out: Layout of the result.
        index: dtype of the indices.
    """

    def __init__(self, cccl: Cccl, memory: PlanMemory, src: Layout, out: Layout, index: str) -> None:
        self._bring, self._delivery = memory.brought(src), memory.delivered(out)
        self._args = CubArgs(n=out.size)
        self._take = move_kernel(cccl.device, f"take_{src.dtype.itemsize}_{index}", out.size, self._args)

    def __call__(self, native: int, at: int, indices: int, out: int) -> None:
        """Enqueue it."""
        args = self._args
        args.a, args.b, args.out = self._bring(native, at), indices, self._delivery.target(out)
        self._take(native)
        self._delivery.finish(native, out)


class Line:
    """A sort of rows by the whole GPU, one after the other, with values of up to 8 bytes.

    Args:
        cccl: Builds.
        memory: Memory of the plan.
        layout: Layout of the keys.
        descending: True for descending order.
        size: Bytes of a value beside each key; 0 if there are no values.

    Attributes:
        bring: Makes the keys row-major.
    """

    def __init__(self, cccl: Cccl, memory: PlanMemory, layout: Layout, descending: bool, size: int = 0) -> None:
        self.bring = memory.brought(layout)
        self._rows, n = _rows(layout)
        self._steps = n * layout.dtype.itemsize, n * size
        self._keys, self._out_keys = Span(storage(layout)), Span(storage(layout))
        self._values = Span(PLAIN[size]) if size else None
        self._out_values = Span(PLAIN[size]) if size else None
        self._sort = cccl.step(
            memory, "radix_sort", {"order": _order_of(cccl, descending)}, {"num_items": n}, d_in_keys=self._keys,
            d_out_keys=self._out_keys, d_in_values=self._values, d_out_values=self._out_values,
        )  # fmt: skip
        self._nans = Nans(cccl, memory, layout, n, descending, size) if layout.dtype.is_float else None

    def __call__(self, native: int, keys: int, out_keys: int, values: int = 0, out_values: int = 0) -> None:
        """Enqueue it, from row-major arrays to others."""
        key_step, value_step = self._steps
        for _ in range(self._rows):
            self._keys.ptr, self._out_keys.ptr = keys, out_keys
            if self._values is not None and self._out_values is not None:
                self._values.ptr, self._out_values.ptr = values, out_values
            self._sort(native)
            if self._nans is not None:
                self._nans(native, keys, out_keys, values, out_values)
            keys, out_keys = keys + key_step, out_keys + key_step
            values, out_values = values + value_step, out_values + value_step


def _by_lines(layout: Layout) -> bool:
    """True if the rows are sorted one by one, not all at once by indices."""
    rows, n = _rows(layout)
    return rows == 1 or (rows <= FEW_ROWS and n >= LONG_ROW)


def _rows(layout: Layout) -> tuple[int, int]:
    return math.prod(layout.shape[:-1]), layout.shape[-1]


def _by_row(cccl: Cccl, layout: Layout, index: str) -> Callable[[int, int, int], None]:
    """Writes the row of each index."""
    args = CubArgs(n=layout.size, m=max(layout.shape[-1], 1))
    run = move_kernel(cccl.device, f"row_{index}", layout.size, args)

    def group(native: int, indices: int, groups: int) -> None:
        args.a, args.out = indices, groups
        run(native)

    return group


def _ordering(cccl: Cccl, memory: PlanMemory, keys: Keys, layout: Layout, descending: bool) -> Ordering:
    rows, _ = _rows(layout)
    group = _by_row(cccl, layout, index_name(layout.size)) if rows > 1 else None
    return Ordering(cccl, memory, keys, layout, descending, rows, group)


def _nothing(cccl: Cccl) -> Work:
    return PlanMemory(cccl).work(nothing)


@plans(cub.Sort)
def sort(cccl: Cccl, op: "cub.Sort") -> Work:
    """A plan: ``(keys, out)``."""
    memory, layout, out = PlanMemory(cccl), op.keys.layout, result_layout(op)
    if not layout.size:
        return _nothing(cccl)
    if not _by_lines(layout):
        keys = Keys(cccl, memory, layout)
        ordering = _ordering(cccl, memory, keys, layout, op.descending)
        take = Gather(cccl, memory, layout, out, ordering.index)

        def all_rows(native: int, at: int, result: int) -> None:
            keys(native, at)
            take(native, at, ordering(native), result)

        return memory.work(all_rows)
    line, delivery = Line(cccl, memory, layout, op.descending), memory.delivered(out)

    def enqueue(native: int, at: int, result: int) -> None:
        line(native, line.bring(native, at), delivery.target(result))
        delivery.finish(native, result)

    return memory.work(enqueue)


@plans(cub.ArgSort)
def argsort(cccl: Cccl, op: "cub.ArgSort") -> Work:
    """A plan: ``(keys, out)``."""
    memory, layout, out = PlanMemory(cccl), op.keys.layout, result_layout(op)
    if not layout.size:
        return _nothing(cccl)
    keys = Keys(cccl, memory, layout)
    ordering, delivery = _ordering(cccl, memory, keys, layout, op.descending), memory.delivered(out)
    args = CubArgs(n=layout.size, m=layout.shape[-1])
    widen = move_kernel(cccl.device, f"local_{ordering.index}", layout.size, args)

    def enqueue(native: int, at: int, result: int) -> None:
        keys(native, at)
        args.a, args.out = ordering(native), delivery.target(result)
        widen(native)
        delivery.finish(native, result)

    return memory.work(enqueue)


@plans(cub.SortPairs)
def sort_pairs(cccl: Cccl, op: "cub.SortPairs") -> Work:
    """A plan: ``(keys, values, out_keys, out_values)``."""
    layout = op.keys.layout
    if not layout.size:
        return _nothing(cccl)
    memory, values = PlanMemory(cccl), op.values.layout
    if not _by_lines(layout) or values.dtype.itemsize not in PLAIN:
        keys = Keys(cccl, memory, layout)
        ordering = _ordering(cccl, memory, keys, layout, op.descending)
        return memory.work(_taken(cccl, memory, op, keys, ordering))
    line, bring = Line(cccl, memory, layout, op.descending, values.dtype.itemsize), memory.brought(values)
    of_keys, of_values = (memory.delivered(result_layout(op, name)) for name in ("out_keys", "out_values"))

    def enqueue(native: int, at: int, values_at: int, out_keys: int, out_values: int) -> None:
        given = line.bring(native, at), bring(native, values_at)
        line(native, given[0], of_keys.target(out_keys), given[1], of_values.target(out_values))
        of_keys.finish(native, out_keys)
        of_values.finish(native, out_values)

    return memory.work(enqueue)


@plans(cub.SegmentedSort)
def segmented_sort(cccl: Cccl, op: "cub.SegmentedSort") -> Work:
    """A plan: ``(keys, values, offsets, out_keys, out_values)``."""
    layout, offsets = op.keys.layout, op.offsets.layout
    if not layout.size:
        return _nothing(cccl)
    memory, segments = PlanMemory(cccl), offsets.size - 1
    keys, bring = Keys(cccl, memory, layout), memory.brought(offsets)
    args, index = CubArgs(n=layout.size, m=max(segments, 1)), index_name(layout.size)
    find = move_kernel(cccl.device, f"segment_{index}_{offsets.dtype.name}", layout.size, args)

    def group(native: int, indices: int, groups: int) -> None:
        args.a, args.out = indices, groups
        find(native)

    ordering = Ordering(cccl, memory, keys, layout, op.descending, segments, group)
    run = _taken(cccl, memory, op, keys, ordering)

    def enqueue(native: int, at: int, values: int, offsets_at: int, out_keys: int, out_values: int) -> None:
        args.b = bring(native, offsets_at)
        run(native, at, values, out_keys, out_values)

    return memory.work(enqueue)


def _taken(cccl: Cccl, memory: PlanMemory, op: Any, keys: Keys, ordering: Ordering) -> Callable[..., None]:
    """Keys and values by the order of the keys, each with its own bits."""
    keys_of = Gather(cccl, memory, op.keys.layout, result_layout(op, "out_keys"), ordering.index)
    values_of = Gather(cccl, memory, op.values.layout, result_layout(op, "out_values"), ordering.index)

    def enqueue(native: int, at: int, values: int, out_keys: int, out_values: int) -> None:
        keys(native, at)
        indices = ordering(native)
        keys_of(native, at, indices, out_keys)
        values_of(native, values, indices, out_values)

    return enqueue


@plans(cub.MergeSort, refuses=no_text)
def merge_sort(cccl: Cccl, op: "cub.MergeSort") -> Work:
    """A plan: ``(keys, values, out_keys, out_values)``."""
    layout = op.keys.layout
    if not layout.size:
        return _nothing(cccl)
    assert op.cuda is not None
    memory, n, index = PlanMemory(cccl), layout.size, index_name(layout.size)
    kind = DTYPES[index].np
    first, order = memory.take_items(n, kind), memory.take_items(n, kind)
    source, target = Span(storage(layout)), memory.take(layout.nbytes, storage(layout))
    bring, args = memory.brought(layout), CubArgs(n=n)
    iota = move_kernel(cccl.device, f"iota_{index}", n, args)
    step = cccl.step(
        memory, "merge_sort", None, {"num_items": n}, d_in_keys=source, d_in_values=first, d_out_keys=target,
        d_out_values=order, op=comparison(cccl, op.cuda, layout.dtype),
    )  # fmt: skip
    keys_of = Gather(cccl, memory, layout, result_layout(op, "out_keys"), index)
    values_of = Gather(cccl, memory, op.values.layout, result_layout(op, "out_values"), index)

    def enqueue(native: int, at: int, values: int, out_keys: int, out_values: int) -> None:
        source.ptr, args.out = bring(native, at), first.ptr
        iota(native)
        step(native)
        keys_of(native, at, order.ptr, out_keys)
        values_of(native, values, order.ptr, out_values)

    return memory.work(enqueue)


@plans(cub.TopK)
def top_k(cccl: Cccl, op: "cub.TopK") -> Work:
    """A plan: ``(x, values, indices)``."""
    layout, k = op.x.layout, op.k
    values, places = result_layout(op, "values"), result_layout(op, "indices")
    if not layout.size or not k:
        return _nothing(cccl)
    memory = PlanMemory(cccl)
    keys = Keys(cccl, memory, layout)
    ordering = _ordering(cccl, memory, keys, layout, op.largest)
    of_values, of_places = memory.delivered(values), memory.delivered(places)
    args = CubArgs(n=values.size, m=layout.shape[-1], k=k)
    take = move_kernel(cccl.device, f"top_{layout.dtype.itemsize}_{ordering.index}", values.size, args)

    def enqueue(native: int, at: int, values_at: int, places_at: int) -> None:
        keys(native, at)
        args.b, args.a = ordering(native), keys.given
        args.out, args.second = of_values.target(values_at), of_places.target(places_at)
        take(native)
        of_values.finish(native, values_at)
        of_places.finish(native, places_at)

    return memory.work(enqueue)
