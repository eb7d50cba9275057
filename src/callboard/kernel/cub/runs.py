"""Run-length encoding."""

from typing import ClassVar, Generic, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.checks import ANY, ORDERED, check_dtype, check_index, check_line, found_of

__all__ = ["RunLengthDecode", "RunLengthEncode", "Runs"]

MOST = 1 << 50


class Runs(NamedTuple, Generic[Mode]):
    """Runs of equal elements.

    Attributes:
        values: The element of each run.
        lengths: The number of times it is repeated, i64.
    """

    values: GpuRef[Mode]
    lengths: GpuRef[Mode]


class RunLengthEncode(Op[CubActor, Runs], tag="cub.run_length_encode"):
    """The runs of equal elements of a line: their values and lengths.

    -0.0 equals 0.0 (a run has the value of its first element), and no NaN equals another. The number of runs depends on
    the data: without ``values`` it is known when the result is awaited.

    Args:
        x: ``[n]``, f16, bf16, f32, f64, any integer or bool.
        values, lengths: Arrays of the same length, given together with ``count``; ``lengths`` is i64. Elements behind
            the last run are unchanged. If there are more runs, the op fails and the error names the length needed.
        count: 0-d i64: the number of runs.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED
    returns: ClassVar[tuple[str, ...]] = ("values", "lengths")
    results: ClassVar[type[Runs]] = Runs

    x: In
    values: Out | None = None
    lengths: Out | None = None
    count: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "x", self.x, ORDERED)
        n = check_line(self, "x", self.x)
        return found_of(self, n, {"values": dtype, "lengths": DTYPES["i64"]}, self.count)


class RunLengthDecode(Op[CubActor, GpuRef], tag="cub.run_length_decode"):
    """Repeat each element by its length: the inverse of :class:`RunLengthEncode`, and ``numpy.repeat``.

    Args:
        values: ``[runs]``, any dtype but f4_e2m1.
        lengths: ``[runs]``, i32 or i64, none negative.
        out, count: See :class:`Select`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ANY

    values: In
    lengths: In
    out: Out | None = None
    count: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "values", self.values, ANY)
        runs = check_line(self, "values", self.values)
        check_index(self, "lengths", self.lengths)
        check_line(self, "lengths", self.lengths, runs)
        return found_of(self, MOST if runs else 0, {"out": dtype}, self.count)
