"""Matrices of blocks: how they are made, of dense ones and of entries, and made dense, by custom kernels."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import THREADS
from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse.conversions import ByRows
from callboard.backends.cuda.sparse.counting import Count, Scan
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.kernels import WARP, BlockArgs, SparseArgs, launcher
from callboard.core.dtype import DTYPES
from callboard.core.library import Extents
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of
from callboard.kernel.sparse.results import stored_block

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CheckingPadded", "ToBlocks", "to_dense"]

FEW = 1024
"""Entries of a block row that one warp handles alone."""


class ToBlocks:
    """A plan: the blocks of each block row are counted, summed up to pointers, and written, then their elements.

    Serves ``FromDense``, and ``Convert`` to a ``BsrRef`` or ``BlockedEllRef``; entries are ordered by rows.

    Args:
        cusparse: Handle and stream.
        maker: A handle for questions, on the thread of the prepare.
        op: The message.

    Attributes:
        captures: True if it can be recorded in a graph.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: "sparse.FromDense | sparse.Convert") -> None:
        self._cusparse = cusparse
        self._op = op
        assert op.block is not None
        device, (down, across) = cusparse.device, op.block
        self._rows: ByRows | None = None
        if isinstance(op, sparse.FromDense):
            shape, dtype, index, entries = op.dense.shape, op.dense.dtype, str(op.index), op.dense.size
        else:
            assert isinstance(op.a, sparse.CsrRef | sparse.CscRef | sparse.CooRef)
            shape, dtype, index, entries = op.a.shape, op.a.values.dtype, index_of(op.a).name, op.a.nnz
            self._rows = ByRows(cusparse, maker, op.a)
        self.captures = self._rows is None or self._rows.captures
        args = self._args = BlockArgs(lines=shape[0] // down, width=shape[1] // across, down=down, across=across)
        self._ell = args.ell = op.format == "blocked_ell"
        self._nbytes = DTYPES[index].itemsize * (args.lines + 1)
        self._memory = device.allocate(self._nbytes)
        self._counted = Count(cusparse)
        args.count, args.pointers = self._counted.address, self._memory.address
        self._item = dtype.itemsize
        if isinstance(op, sparse.FromDense):
            args.row_step, args.col_step = op.dense.strides
            kind, fill, args.share = "half" if self._item == 2 else dtype.name, f"gather_{self._item}", 1
        else:
            kind, fill, args.share = (
                "entries",
                f"pack_{dtype.name}",
                THREADS // WARP if entries <= FEW * args.lines else 1,
            )
            args.entries = entries
        each = THREADS // args.share
        self._count = launcher(device, f"count_{kind}", args.lines, args, part=index, each=each)
        self._write = launcher(device, f"write_{kind}", args.lines, args, part=index, each=each)
        self._scan = Scan(cusparse, args.pointers, args.lines, index, self._counted)
        self._fill = launcher(device, fill, entries, args, part=index)
        self._blank = launcher(device, f"blank_{self._item}", entries, args, part=index)
        self._room = -1
        if op.out is not None:
            self._room = op.out.indices.shape[1] if isinstance(op.out, sparse.BlockedEllRef) else op.out.values.shape[0]
        self._found = 0

    def query_size(self, stream: "CudaStream", source: "int | Sequence[int]", out: None, count: None) -> Extents:
        """Count; on the helper's thread, with the stream idle."""
        self._cusparse.bind(stream)
        self._look(source)
        found = self._found = self._counted.read()
        args = self._args
        if self._ell:
            return [(args.lines * args.down, found * args.across), (args.lines, found)]
        return [(found, args.down, args.across), (found,)]

    def __call__(
        self, stream: "CudaStream", source: "int | Sequence[int]", out: Sequence[int], count: int | None
    ) -> CudaStatus | None:
        """Write the blocks."""
        cusparse, args, given = self._cusparse, self._args, self._op.out is not None
        cusparse.bind(stream)
        native, driver = stream.native, cusparse.driver
        if given:
            self._look(source)
        elif isinstance(source, int):
            args.src = source
        args.room = room = self._room if given else self._found
        args.most = room if self._ell else 0
        args.out, args.indices = out[0], out[1]
        self._write(native)
        elements = (args.lines if self._ell else 1) * room * args.down * args.across
        if self._rows is None:
            args.entries = elements
        elif not self._ell:
            self._blank(native)
        elif elements:
            driver.check(driver.memset_8(args.out, 0, elements * self._item, native), "cuMemsetD8Async")
        self._fill(native)
        if not self._ell:
            driver.check(driver.memcpy_dtod(out[2], args.pointers, self._nbytes, native), "cuMemcpyDtoDAsync")
        return self._counted.tell(self._op, room, count)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        if self._rows is not None:
            self._rows.close()
        self._counted.close()
        self._scan.close()
        self._cusparse.device.release(self._memory)

    def _look(self, source: "int | Sequence[int]") -> None:
        """Count the blocks, on the device."""
        args, native = self._args, self._cusparse.stream.native
        if isinstance(source, int):
            args.src = source
        else:
            assert self._rows is not None
            args.src, args.first, args.second = self._rows(source)
        self._counted.clear()
        self._count(native)
        if not self._ell:
            self._scan(native)


def to_dense(cusparse: Cusparse, op: sparse.ToDense) -> "Callable[[CudaStream, Sequence[int], int], None]":
    """``run(stream, a, out)`` for a matrix of blocks: zeros, then the blocks."""
    out = op.infer()["out"] if op.out is None else op.out.layout
    if out.size == 0:
        return lambda stream, a, out: None
    args, device = _stored(op.a), cusparse.device
    args.row_step, args.col_step = out.strides
    zeros = SparseArgs(major=out.shape[0], minor=out.shape[1], major_step=out.strides[0], minor_step=out.strides[1])
    clear = launcher(device, f"clear_{out.dtype.itemsize}", out.size, zeros)
    spread = launcher(device, f"spread_{out.dtype.name}", op.a.nnz, args, part=index_of(op.a).name)

    def run(stream: "CudaStream", parts: Sequence[int], at: int) -> None:
        zeros.out = args.out = at
        args.src, args.indices, args.pointers = parts[0], parts[1], parts[-1]
        clear(stream.native)
        spread(stream.native)

    return run


class CheckingPadded:
    """Counts the faults of a blocked-ELL matrix at an address."""

    def __init__(self, cusparse: Cusparse, op: sparse.Check, faults: int) -> None:
        a = op.a
        assert isinstance(a, sparse.BlockedEllRef)
        args = self._args = _stored(a)
        args.faults, args.lowest = faults, -1 if a.padded else 0
        args.ordered, args.least = op.ordered, op.duplicates == "refuse"
        self._run = launcher(cusparse.device, "check_padded", a.indices.size, args, part=index_of(a).name)

    def __call__(self, stream: int, parts: Sequence[int]) -> None:
        """Enqueue it."""
        self._args.indices = parts[1]
        self._run(stream)


def _stored(a: "sparse.AnyRef") -> BlockArgs:
    """Arguments for the layout of the blocks of a matrix."""
    down, across = stored_block(a) or (1, 1)
    args = BlockArgs(lines=a.shape[0] // down, width=a.shape[1] // across, down=down, across=across, entries=a.nnz)
    if isinstance(a, sparse.BlockedEllRef):
        args.ell, args.most = 1, a.indices.shape[1]
    return args
