"""``CudaCub``: parallel primitives on a GPU."""

from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.cub import partition, reductions, scans, searching, selection, sorting
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Entry, Library
from callboard.kernel import cub

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaCub"]


def no_text(op: Any) -> str | None:
    """A custom operator has to have a body for here."""
    if op.python is not None and op.cuda is None:
        return "its operator has a body in Python only; pass cuda, its C++ text, too"
    return None


class CudaCub(Library):
    """Serves :mod:`callboard.kernel.cub` with CUB, through ``cuda.compute``, and custom kernels.

    All launches can be recorded in graphs. An algorithm is compiled on the helper's thread for each set of dtypes and
    operators, which takes 1 to 3 s, and is kept on disk.
    """

    name = "cub"
    max_plans = 1024
    table: ClassVar = {
        cub.Reduce: Entry(lambda library, op: reductions.reduce(library.cccl, op), refuses=no_text),
        cub.ArgReduce: Entry(lambda library, op: reductions.arg_reduce(library.cccl, op)),
        cub.SegmentedReduce: Entry(lambda library, op: reductions.segmented_reduce(library.cccl, op), refuses=no_text),
        cub.Scan: Entry(lambda library, op: scans.scan(library.cccl, op), refuses=no_text),
        cub.Sort: Entry(lambda library, op: sorting.sort(library.cccl, op)),
        cub.ArgSort: Entry(lambda library, op: sorting.argsort(library.cccl, op)),
        cub.SortPairs: Entry(lambda library, op: sorting.sort_pairs(library.cccl, op)),
        cub.MergeSort: Entry(lambda library, op: sorting.merge_sort(library.cccl, op), refuses=no_text),
        cub.SegmentedSort: Entry(lambda library, op: sorting.segmented_sort(library.cccl, op)),
        cub.TopK: Entry(lambda library, op: sorting.top_k(library.cccl, op)),
        cub.LowerBound: Entry(lambda library, op: searching.bound(library.cccl, op)),
        cub.UpperBound: Entry(lambda library, op: searching.bound(library.cccl, op)),
        cub.HistogramEven: Entry(lambda library, op: searching.histogram(library.cccl, op)),
        cub.HistogramRange: Entry(lambda library, op: searching.histogram(library.cccl, op)),
        cub.Partition: Entry(lambda library, op: partition.partition(library.cccl, op)),
        cub.Select: Entry(lambda library, op: selection.Selecting(library.cccl, op), sizes=True),
        cub.SelectIf: Entry(lambda library, op: selection.Filtering(library.cccl, op), sizes=True, refuses=no_text),
        cub.Unique: Entry(lambda library, op: selection.Selecting(library.cccl, op), sizes=True),
        cub.UniqueByKey: Entry(lambda library, op: selection.Selecting(library.cccl, op), sizes=True),
        cub.RunLengthEncode: Entry(lambda library, op: selection.Selecting(library.cccl, op), sizes=True),
        cub.RunLengthDecode: Entry(lambda library, op: selection.Decoding(library.cccl, op), sizes=True),
    }

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cccl = Cccl(device)

    def warm_up(self) -> None:
        """Load our kernels."""
        self.cccl.device.kernels.get("cub_moves", "iota_i32")

    def close(self) -> None:
        self.cccl.close()
