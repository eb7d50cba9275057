"""Parallel primitives: reductions, scans, sorts, selections, histograms (``CubActor``)."""

from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.histograms import HistogramEven, HistogramRange
from callboard.kernel.cub.reductions import ArgReduce, Reduce, SegmentedReduce
from callboard.kernel.cub.runs import RunLengthDecode, RunLengthEncode, Runs
from callboard.kernel.cub.scans import Scan
from callboard.kernel.cub.searching import LowerBound, UpperBound
from callboard.kernel.cub.selection import Partition, Partitioned, Select, SelectIf, Unique, UniqueByKey
from callboard.kernel.cub.sorting import ArgSort, MergeSort, Pairs, SegmentedSort, Sort, SortPairs, Top, TopK

__all__ = [
    "ArgReduce",
    "ArgSort",
    "CubActor",
    "HistogramEven",
    "HistogramRange",
    "LowerBound",
    "MergeSort",
    "Pairs",
    "Partition",
    "Partitioned",
    "Reduce",
    "RunLengthDecode",
    "RunLengthEncode",
    "Runs",
    "Scan",
    "SegmentedReduce",
    "SegmentedSort",
    "Select",
    "SelectIf",
    "Sort",
    "SortPairs",
    "Top",
    "TopK",
    "Unique",
    "UniqueByKey",
    "UpperBound",
]
