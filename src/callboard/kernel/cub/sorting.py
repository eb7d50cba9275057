"""Sorts, all of them stable, and the largest elements.

Floating-point keys are in the order of NumPy: -0.0 and 0.0 are equal, NaNs (of either sign) are equal and come last. A
descending sort is the order of the negated ranks: NaNs come first, and equal keys keep their order.
"""

from typing import ClassVar, Generic, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.checks import ANY, ORDERED, check_dtype, check_index, check_line, rows_of

__all__ = ["ArgSort", "MergeSort", "Pairs", "SegmentedSort", "Sort", "SortPairs", "Top", "TopK"]


class Pairs(NamedTuple, Generic[Mode]):
    """Keys and their values.

    Attributes:
        keys: Sorted.
        values: The values, in the order of their keys.
    """

    keys: GpuRef[Mode]
    values: GpuRef[Mode]


class Top(NamedTuple, Generic[Mode]):
    """The first elements of a sorted row.

    Attributes:
        values: The elements.
        indices: Position of each element in the row, i64.
    """

    values: GpuRef[Mode]
    indices: GpuRef[Mode]


class Sort(Op[CubActor, GpuRef], tag="cub.sort"):
    """The elements of each row in order (``SortRequest``), by a stable radix sort.

    Args:
        keys: ``[..., n]``, f16, bf16, f32, f64, any integer or bool. -0.0 equals 0.0, NaNs are after all others.
        out: Same shape and dtype; a new array when None.
        descending: The largest first, NaNs before it; equal keys keep their order.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    keys: In
    out: Out | None = None
    descending: bool = False

    def infer(self) -> Outputs:
        check_dtype(self, "keys", self.keys, ORDERED)
        rows_of(self, "keys", self.keys)
        return {"out": layout_of(self.keys.dtype, self.keys.shape)}


class ArgSort(Op[CubActor, GpuRef], tag="cub.arg_sort"):
    """The indices that sort each row; as :class:`Sort`.

    Args:
        keys: ``[..., n]``.
        out: Same shape, i64; a new array when None.
        descending: The index of the largest first; indices of equal keys ascend either way.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    keys: In
    out: Out | None = None
    descending: bool = False

    def infer(self) -> Outputs:
        check_dtype(self, "keys", self.keys, ORDERED)
        rows_of(self, "keys", self.keys)
        return {"out": layout_of(DTYPES["i64"], self.keys.shape)}


class SortPairs(Op[CubActor, Pairs], tag="cub.sort_pairs"):
    """The keys of each row in order, and values in the order of their keys; as :class:`Sort`.

    Args:
        keys: ``[..., n]``.
        values: Same shape, any dtype but f4_e2m1.
        out_keys, out_values: Shapes and dtypes of ``keys`` and ``values``; new arrays when None.
        descending: The largest key first.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED
    returns: ClassVar[tuple[str, ...]] = ("out_keys", "out_values")
    results: ClassVar[type[Pairs]] = Pairs

    keys: In
    values: In
    out_keys: Out | None = None
    out_values: Out | None = None
    descending: bool = False

    def infer(self) -> Outputs:
        check_dtype(self, "keys", self.keys, ORDERED)
        check_dtype(self, "values", self.values, ANY)
        rows_of(self, "keys", self.keys)
        if self.values.shape != self.keys.shape:
            raise refuse(self, f"values is {self.values.layout!r} and keys {self.keys.layout!r}; they need one shape")
        return {
            "out_keys": layout_of(self.keys.dtype, self.keys.shape),
            "out_values": layout_of(self.values.dtype, self.keys.shape),
        }


class MergeSort(Op[CubActor, Pairs], tag="cub.merge_sort"):
    """A line of keys in the order of a comparison of the caller's, and values with them; stable, by merging.

    Args:
        keys: ``[n]``, f16, bf16, f32, f64, any integer or bool.
        values: ``[n]``, any dtype but f4_e2m1.
        cuda: Body of the comparison as CUDA C++, which returns whether ``a`` precedes ``b``:
            ``"return a % 10 < b % 10;"``. Halves are passed as f32, bool as u8.
        python: The same as a Python expression of two scalars, ``"a % 10 < b % 10"``, for the CPU.
        out_keys, out_values: Shapes and dtypes of ``keys`` and ``values``; new arrays when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED
    returns: ClassVar[tuple[str, ...]] = ("out_keys", "out_values")
    results: ClassVar[type[Pairs]] = Pairs

    keys: In
    values: In
    cuda: str | None = None
    python: str | None = None
    out_keys: Out | None = None
    out_values: Out | None = None

    def infer(self) -> Outputs:
        check_dtype(self, "keys", self.keys, ORDERED)
        check_dtype(self, "values", self.values, ANY)
        n = check_line(self, "keys", self.keys)
        check_line(self, "values", self.values, n)
        if self.cuda is None and self.python is None:
            raise refuse(self, "the comparison has no body; pass its C++ text as cuda, its Python text as python")
        return {"out_keys": layout_of(self.keys.dtype, (n,)), "out_values": layout_of(self.values.dtype, (n,))}


class SegmentedSort(Op[CubActor, Pairs], tag="cub.segmented_sort"):
    """The keys of each segment of a line in order, and values with them; as :class:`Sort`.

    Args:
        keys: ``[n]``.
        values: ``[n]``, any dtype but f4_e2m1.
        offsets: ``[segments + 1]``, i32 or i64: where each segment begins, and where the last ends; never falling,
            from 0 to n. On CUDA wrong offsets are undefined behaviour.
        out_keys, out_values: Shapes and dtypes of ``keys`` and ``values``; new arrays when None.
        descending: The largest key first.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED
    returns: ClassVar[tuple[str, ...]] = ("out_keys", "out_values")
    results: ClassVar[type[Pairs]] = Pairs

    keys: In
    values: In
    offsets: In
    out_keys: Out | None = None
    out_values: Out | None = None
    descending: bool = False

    def infer(self) -> Outputs:
        check_dtype(self, "keys", self.keys, ORDERED)
        check_dtype(self, "values", self.values, ANY)
        n = check_line(self, "keys", self.keys)
        check_line(self, "values", self.values, n)
        if check_index(self, "offsets", self.offsets) < 1:
            raise refuse(self, f"offsets is {self.offsets.layout!r}; no segment is [0]")
        return {"out_keys": layout_of(self.keys.dtype, (n,)), "out_values": layout_of(self.values.dtype, (n,))}


class TopK(Op[CubActor, Top], tag="cub.top_k"):
    """The largest or smallest elements of each row, in order, and where they were.

    Ties are resolved in favour of the lower index. NaN counts as the largest.

    Args:
        x: ``[..., n]``, f16, bf16, f32, f64, any integer or bool.
        k: Number of elements, at most n.
        largest: The largest ones, descending; else the smallest ones, ascending.
        values: ``[..., k]``, dtype of ``x``; a new array when None.
        indices: ``[..., k]``, i64; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED
    returns: ClassVar[tuple[str, ...]] = ("values", "indices")
    results: ClassVar[type[Top]] = Top

    x: In
    k: int
    largest: bool = True
    values: Out | None = None
    indices: Out | None = None

    def infer(self) -> Outputs:
        check_dtype(self, "x", self.x, ORDERED)
        rows, n = rows_of(self, "x", self.x)
        if not 0 <= self.k <= n:
            raise refuse(self, f"k is {self.k}; it must lie between 0 and the {n} elements of a row")
        shape = (*rows, self.k)
        return {"values": layout_of(self.x.dtype, shape), "indices": layout_of(DTYPES["i64"], shape)}
