"""Selections, partitions and runs: elements are found, then written."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.cub.operators import COMPARISONS, Array, compiled, no_text
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DTYPES, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.library import Extents, plans
from callboard.core.op import info_of
from callboard.core.operand import Role
from callboard.kernel import cub
from callboard.kernel.cub.checks import compute_dtype, no_room

__all__ = ["Found", "decode", "encode", "partition", "select", "select_if", "unique", "unique_by_key"]

Plan = Callable[..., None]
Finds = Callable[..., list[Array]]


class Found:
    """A plan of an op with data-dependent result lengths.

    Args:
        op: The message.
        find: Computes the results from the launch's arguments for the inputs.
    """

    def __init__(self, op: Any, find: Finds) -> None:
        self._op = op
        self._find = find
        fields = info_of(type(op)).dynamic
        self._inputs = [at for at, field in enumerate(fields) if field.role is not Role.OUT]
        self._outputs = [at for at, f in enumerate(fields) if f.role is Role.OUT and f.name != "count"]
        self._count = next(at for at, field in enumerate(fields) if field.name == "count")
        self._given = None
        if op.count is not None:
            self._given = [viewer(getattr(op, fields[at].name).layout) for at in self._outputs]
        self._results: list[Array] | None = None  # the result of a size query, for the launch that follows

    def query_size(self, stream: CpuStream, *dynamic: Any) -> Extents:
        """Find them."""
        results = self._results = self._find(*(dynamic[at] for at in self._inputs))
        return [result.shape for result in results]

    def __call__(self, *dynamic: Any) -> None:
        """Write them."""
        results, self._results = self._results, None
        if results is None:
            results = self._find(*(dynamic[at] for at in self._inputs))
        if self._given is None:
            for at, result in zip(self._outputs, results, strict=True):
                viewer(layout_of(as_dtype(result.dtype), result.shape))(dynamic[at])[...] = result
            return
        found = results[0].size
        viewer(layout_of(DTYPES["i64"], ()))(dynamic[self._count])[...] = found
        targets = [view(dynamic[at]) for view, at in zip(self._given, self._outputs, strict=True)]
        if found > targets[0].size:
            raise no_room(type(self._op).__struct_config__.tag, found, targets[0].size)
        for target, result in zip(targets, results, strict=True):
            target[:found] = result


@plans(cub.Select, sizes=True)
def select(op: "cub.Select") -> Found:
    """``find(x, flags)``."""
    x_of, flags_of = viewer(op.x.layout), viewer(op.flags.layout)
    return Found(op, lambda x, flags: [x_of(x)[flags_of(flags) != 0]])


@plans(cub.SelectIf, sizes=True, refuses=no_text)
def select_if(op: "cub.SelectIf") -> Found:
    """``find(x, number)``."""
    x_of, work = viewer(op.x.layout), compute_dtype(op.x.dtype).np
    if op.comparison == "custom":
        assert op.python is not None
        predicate = compiled(op, op.python, "a")

        def fulfilled(x: int, number: None) -> list[Array]:
            array = x_of(x)
            kept = np.broadcast_to(np.asarray(predicate(array.astype(work, copy=False))), array.shape)
            return [array[kept.astype(bool)]]

        return Found(op, fulfilled)
    compare = COMPARISONS[op.comparison]

    def compared(x: int, number: float) -> list[Array]:
        array = x_of(x)
        other = work.type(number) if work.kind == "f" else number  # whole numbers beyond the dtype compare as they are
        return [array[compare(array.astype(work, copy=False), other)]]

    return Found(op, compared)


def _begins(line: Array) -> Array:
    """Mask of the elements that start a run of equal elements."""
    differs = np.ones(line.size, bool)
    np.not_equal(line[1:], line[:-1], out=differs[1:])
    return np.flatnonzero(differs)


@plans(cub.Unique, sizes=True)
def unique(op: "cub.Unique") -> Found:
    """``find(x)``."""
    x_of = viewer(op.x.layout)

    def find(x: int) -> list[Array]:
        line = x_of(x)
        return [line[_begins(line)]]

    return Found(op, find)


@plans(cub.UniqueByKey, sizes=True)
def unique_by_key(op: "cub.UniqueByKey") -> Found:
    """``find(keys, values)``."""
    keys_of, values_of = viewer(op.keys.layout), viewer(op.values.layout)

    def find(keys: int, values: int) -> list[Array]:
        line = keys_of(keys)
        begins = _begins(line)
        return [line[begins], values_of(values)[begins]]

    return Found(op, find)


@plans(cub.RunLengthEncode, sizes=True)
def encode(op: "cub.RunLengthEncode") -> Found:
    """``find(x)``."""
    x_of = viewer(op.x.layout)

    def find(x: int) -> list[Array]:
        line = x_of(x)
        begins = _begins(line)
        return [line[begins], np.diff(begins, append=line.size).astype(np.int64)]

    return Found(op, find)


@plans(cub.RunLengthDecode, sizes=True)
def decode(op: "cub.RunLengthDecode") -> Found:
    """``find(values, lengths)``."""
    values_of, lengths_of = viewer(op.values.layout), viewer(op.lengths.layout)

    def find(values: int, lengths: int) -> list[Array]:
        repeats = lengths_of(lengths)
        if repeats.size and repeats.min() < 0:
            raise ShapeError(f"cub.run_length_decode: {int((repeats < 0).sum())} lengths are negative")
        return [np.repeat(values_of(values), repeats)]

    return Found(op, find)


@plans(cub.Partition)
def partition(op: "cub.Partition") -> Plan:
    """``run(x, flags, second, out, counts)``."""
    made = op.infer()
    x_of, flags_of = viewer(op.x.layout), viewer(op.flags.layout)
    second_of = None if op.second is None else viewer(op.second.layout)
    out_of = viewer(made["out"] if op.out is None else op.out.layout)
    counts_of = viewer(made["counts"] if op.counts is None else op.counts.layout)

    def run(x: int, flags: int, second: int | None, out: int, counts: int) -> None:
        array, first = x_of(x), flags_of(flags) != 0
        masks = [first, ~first]
        if second_of is not None:
            other = ~first & (second_of(second or 0) != 0)
            masks = [first, other, ~first & ~other]
        parts = [array[mask] for mask in masks]
        out_of(out)[...] = np.concatenate(parts)
        counts_of(counts)[...] = [part.size for part in parts]

    return run
