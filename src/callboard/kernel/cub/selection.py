"""Selections and partitions: elements that are kept, in the order that they had."""

from typing import ClassVar, Generic, NamedTuple

from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Number, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.checks import (
    ANY,
    ORDERED,
    Comparison,
    check_dtype,
    check_line,
    check_number,
    check_texts,
    found_of,
)
from callboard.kernel.cub.sorting import Pairs

__all__ = ["Partition", "Partitioned", "Select", "SelectIf", "Unique", "UniqueByKey"]

FLAGS = dtypes_of("bool u8 i8")


class Partitioned(NamedTuple, Generic[Mode]):
    """A line in parts.

    Attributes:
        out: The parts, one after the other.
        counts: ``[2]`` or ``[3]``, i64: how many elements each has.
    """

    out: GpuRef[Mode]
    counts: GpuRef[Mode]


class Select(Op[CubActor, GpuRef], tag="cub.select"):
    """The elements whose flag is not 0, in the order that they had (``SelectRequest``, ``Flagged``).

    The number of elements depends on the data: without ``out`` it is known when the result is awaited.

    Args:
        x: ``[n]``, any dtype but f4_e2m1.
        flags: ``[n]``, bool, u8 or i8.
        out: Array ``[room]``, given together with ``count``. Elements after the last result are unchanged. If there
            are more results, the op fails and the error names the length needed.
        count: 0-d i64: the number of elements.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ANY

    x: In
    flags: In
    out: Out | None = None
    count: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "x", self.x, ANY)
        n = check_line(self, "x", self.x)
        check_dtype(self, "flags", self.flags, FLAGS)
        check_line(self, "flags", self.flags, n)
        return found_of(self, n, {"out": dtype}, self.count)


class SelectIf(Op[CubActor, GpuRef], tag="cub.select_if"):
    """The elements that compare with a number as asked, or fulfil a custom predicate.

    They keep their order, as in :class:`Select`.

    Args:
        x: ``[n]``, f16, bf16, f32, f64, any integer or bool.
        comparison: ``"less"``, ``"less_equal"``, ``"equal"``, ``"not_equal"``, ``"greater"``, ``"greater_equal"`` with
            ``number``, or ``"custom"``.
        number: Number to compare with; None with ``"custom"``. Halves are compared in f32.
        cuda: Body of a custom predicate as CUDA C++, ``"return a > 0 && a < 9;"``; halves are handed over as f32,
            bool as u8.
        python: The same as a Python expression of an array, ``"(a > 0) & (a < 9)"``, for the CPU.
        out, count: See :class:`Select`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    x: In
    comparison: Comparison = "not_equal"
    number: Number | None = None
    cuda: str | None = None
    python: str | None = None
    out: Out | None = None
    count: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "x", self.x, ORDERED)
        n = check_line(self, "x", self.x)
        check_texts(self, self.comparison, self.cuda, self.python)
        if (self.number is None) is not (self.comparison == "custom"):
            raise refuse(
                self, f"comparison is {self.comparison!r} and number is {self.number}; all but 'custom' need one"
            )
        if self.number is not None:
            check_number(self, "number", self.number, dtype)
        return found_of(self, n, {"out": dtype}, self.count)


class Unique(Op[CubActor, GpuRef], tag="cub.unique"):
    """The first of each run of equal elements (``SelectRequest``, ``Unique``): of a sorted line each value once.

    -0.0 equals 0.0, and no NaN equals another.

    Args:
        x: ``[n]``, f16, bf16, f32, f64, any integer or bool.
        out, count: See :class:`Select`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    x: In
    out: Out | None = None
    count: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "x", self.x, ORDERED)
        return found_of(self, check_line(self, "x", self.x), {"out": dtype}, self.count)


class UniqueByKey(Op[CubActor, Pairs], tag="cub.unique_by_key"):
    """The first of each run of equal keys, and its value; as :class:`Unique`.

    Args:
        keys: ``[n]``, f16, bf16, f32, f64, any integer or bool.
        values: ``[n]``, any dtype but f4_e2m1.
        out_keys, out_values, count: Arrays of the same length, given together with ``count``, as ``out`` of
            :class:`Select`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED
    returns: ClassVar[tuple[str, ...]] = ("out_keys", "out_values")
    results: ClassVar[type[Pairs]] = Pairs

    keys: In
    values: In
    out_keys: Out | None = None
    out_values: Out | None = None
    count: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "keys", self.keys, ORDERED)
        n = check_line(self, "keys", self.keys)
        check_line(self, "values", self.values, n)
        value = check_dtype(self, "values", self.values, ANY)
        return found_of(self, n, {"out_keys": dtype, "out_values": value}, self.count)


class Partition(Op[CubActor, Partitioned], tag="cub.partition"):
    """The elements whose flag is not 0, then the others; or three parts, by two lines of flags (``PartitionRequest``).

    Each part keeps the order that its elements had.

    Args:
        x: ``[n]``, any dtype but f4_e2m1.
        flags: ``[n]``, bool, u8 or i8: the first part.
        second: ``[n]``, likewise: selects the second part from the elements that are not in the first; None: there are
            two parts.
        out: ``[n]``, dtype of ``x``; a new array when None.
        counts: ``[2]``, or ``[3]``, i64: the size of each part; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ANY
    returns: ClassVar[tuple[str, ...]] = ("out", "counts")
    results: ClassVar[type[Partitioned]] = Partitioned

    x: In
    flags: In
    second: In | None = None
    out: Out | None = None
    counts: Out | None = None

    def infer(self) -> Outputs:
        check_dtype(self, "x", self.x, ANY)
        n = check_line(self, "x", self.x)
        for name in ("flags", "second"):
            flags = getattr(self, name)
            if flags is not None:
                check_dtype(self, name, flags, FLAGS)
                check_line(self, name, flags, n)
        parts = 2 if self.second is None else 3
        return {"out": layout_of(self.x.dtype, (n,)), "counts": layout_of(DTYPES["i64"], (parts,))}
