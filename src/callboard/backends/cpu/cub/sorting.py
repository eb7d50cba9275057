"""Sorts, largest elements, and binary searches."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.cub.operators import Array, compiled, no_text
from callboard.backends.cpu.cub.reductions import segment_offsets
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype

__all__ = ["argsort", "merge_sort", "search", "segmented_sort", "sort", "sort_pairs", "top_k"]

Plan = Callable[..., None]


def _order(keys: Array, descending: bool) -> Array:
    """The indices that sort the last axis, stable either way."""
    keys = _comparable(keys)
    if not descending:
        ascending: Array = np.argsort(keys, axis=-1, kind="stable")
        return ascending
    backward: Array = np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    ahead: Array = keys.shape[-1] - 1 - backward
    return ahead


def _comparable(keys: Array) -> Array:
    """Halves as f32, which NumPy compares faster, and whose order is theirs."""
    return keys.astype(np.float32) if keys.dtype.itemsize == 2 and keys.dtype.kind not in "iu" else keys


@plans(cub.Sort)
def sort(op: "cub.Sort") -> Plan:
    """``run(keys, out)``."""
    keys_of, out_of = viewer(op.keys.layout), viewer(op.infer()["out"] if op.out is None else op.out.layout)
    step = -1 if op.descending else 1

    def run(keys: int, out: int) -> None:
        given, result = keys_of(keys), out_of(out)
        ordered = np.array(_comparable(given), order="C")
        ordered.sort(axis=-1)
        result[...] = ordered[..., ::step]
        if ordered.dtype.kind == "f" and ordered.size:
            _restore(given, result, np.equal(given, 0))
            if np.isnan(ordered[..., -1]).any():
                _restore(given, result, np.isnan(given))

    return run


def _restore(keys: Array, result: Array, equal: Array) -> None:
    """Put keys that are equal but differ in bits in the order in which they were given.

    A sort that is not stable takes a fraction of the time, and only zeros and NaNs show the difference.

    Args:
        keys: As they were given.
        result: The keys sorted along the last axis; written.
        equal: True where a key is one of them: 0, or NaN.
    """
    found = keys[equal]
    if not found.size:
        return
    if np.isnan(found[0]):
        result[np.isnan(result)] = found
    elif np.signbit(found).any():
        result[np.equal(result, 0)] = found


@plans(cub.ArgSort)
def argsort(op: "cub.ArgSort") -> Plan:
    """``run(keys, out)``."""
    keys_of, out_of = viewer(op.keys.layout), viewer(op.infer()["out"] if op.out is None else op.out.layout)
    descending = op.descending

    def run(keys: int, out: int) -> None:
        out_of(out)[...] = _order(keys_of(keys), descending)

    return run


def _pair_writer(op: Any) -> Callable[[Array, Array, Array, int, int], None]:
    made = op.infer()
    keys_out = viewer(made["out_keys"] if op.out_keys is None else op.out_keys.layout)
    values_out = viewer(made["out_values"] if op.out_values is None else op.out_values.layout)

    def write(keys: Array, values: Array, order: Array, out_keys: int, out_values: int) -> None:
        keys_out(out_keys)[...] = np.take_along_axis(keys, order, -1)
        values_out(out_values)[...] = np.take_along_axis(values, order, -1)

    return write


@plans(cub.SortPairs)
def sort_pairs(op: "cub.SortPairs") -> Plan:
    """``run(keys, values, out_keys, out_values)``."""
    keys_of, values_of, write, descending = (
        viewer(op.keys.layout),
        viewer(op.values.layout),
        _pair_writer(op),
        op.descending,
    )

    def run(keys: int, values: int, out_keys: int, out_values: int) -> None:
        array = keys_of(keys)
        write(array, values_of(values), _order(array, descending), out_keys, out_values)

    return run


@plans(cub.MergeSort, refuses=no_text)
def merge_sort(op: "cub.MergeSort") -> Plan:
    """``run(keys, values, out_keys, out_values)``."""
    assert op.python is not None
    keys_of, values_of, write = viewer(op.keys.layout), viewer(op.values.layout), _pair_writer(op)
    before, work = compiled(op, op.python, "a", "b"), compute_dtype(op.keys.dtype).np

    def run(keys: int, values: int, out_keys: int, out_values: int) -> None:
        array = keys_of(keys)
        given = list(array.astype(work))

        def compare(i: int, j: int) -> int:
            return int(bool(before(given[j], given[i]))) - int(bool(before(given[i], given[j])))

        order = np.array(sorted(range(array.size), key=functools.cmp_to_key(compare)), np.intp)
        write(array, values_of(values), order, out_keys, out_values)

    return run


@plans(cub.SegmentedSort)
def segmented_sort(op: "cub.SegmentedSort") -> Plan:
    """``run(keys, values, offsets, out_keys, out_values)``."""
    keys_of, values_of, offsets_of = viewer(op.keys.layout), viewer(op.values.layout), viewer(op.offsets.layout)
    write, descending = _pair_writer(op), op.descending

    def run(keys: int, values: int, offsets: int, out_keys: int, out_values: int) -> None:
        array = keys_of(keys)
        begins = segment_offsets(op, offsets_of(offsets), array.size, whole=True)
        segments = np.repeat(np.arange(begins.size - 1), np.diff(begins))
        order = _order(array, descending)
        order = order[np.argsort(segments[order], kind="stable")]
        write(array, values_of(values), order, out_keys, out_values)

    return run


@plans(cub.TopK)
def top_k(op: "cub.TopK") -> Plan:
    """``run(x, values, indices)``."""
    made, k, largest = op.infer(), op.k, op.largest
    x_of = viewer(op.x.layout)
    values_of = viewer(made["values"] if op.values is None else op.values.layout)
    indices_of = viewer(made["indices"] if op.indices is None else op.indices.layout)

    def run(x: int, values: int, indices: int) -> None:
        array = x_of(x)
        order = _first(array, k, largest) if array.ndim == 1 else _order(array, largest)[..., :k]
        values_of(values)[...] = np.take_along_axis(array, order, -1)
        indices_of(indices)[...] = order

    return run


def _first(array: Array, k: int, largest: bool) -> Array:
    """Return the indices of the first elements of a line in sorted order, sorting only those."""
    if not 0 < k < array.size // 8:
        return _order(array, largest)[:k]
    keys = _comparable(array)
    last = np.partition(keys, keys.size - k if largest else k - 1)[keys.size - k if largest else k - 1]
    if last != last:
        return _order(array, largest)[:k]
    ahead = ~(keys <= last) if largest else keys < last  # NaN is the largest
    tied = np.flatnonzero(keys == last)
    found = np.flatnonzero(ahead)
    chosen = np.sort(np.concatenate([found, tied[: k - found.size]]))
    return chosen[_order(array[chosen], largest)]


@plans(cub.LowerBound, cub.UpperBound)
def search(op: "cub.LowerBound | cub.UpperBound") -> Plan:
    """``run(x, values, out)``."""
    x_of, values_of = viewer(op.x.layout), viewer(op.values.layout)
    out_of = viewer(op.infer()["out"] if op.out is None else op.out.layout)
    right = isinstance(op, cub.UpperBound)

    def run(x: int, values: int, out: int) -> None:
        found = np.searchsorted(_comparable(x_of(x)), _comparable(values_of(values)), side="right" if right else "left")
        out_of(out)[...] = found

    return run
