"""Ops on matrices of blocks: custom kernels list the blocks and write them as listed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse.conversions import Converter
from callboard.backends.cuda.sparse.counting import Count, Scan
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.kernels import ListArgs, launcher
from callboard.core.backend import Memory
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import Extents
from callboard.core.operand import Placeholder
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of
from callboard.kernel.sparse.results import stored_block

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["FromBlocks"]

WRITERS = {"csr": "unpack", "csc": "unpack", "coo": "unpack", "bsr": "line_up", "blocked_ell": "pad"}
"""The kernels that write the formats."""

Blocks = sparse.BsrRef | sparse.BlockedEllRef


class Listed(NamedTuple):
    """Addresses of a list of blocks, block row by block row, as a ``BsrRef`` has it."""

    pointers: int
    cols: int
    numbers: int
    """Index of each block in the source; 0: they are in order."""


class FromBlocks:
    """A plan of ``Convert`` of a matrix of blocks, and of ``Transpose``.

    Args:
        cusparse: Handle and stream.
        maker: A handle for questions, on the thread of the prepare.
        op: The message.

    Attributes:
        captures: True if it can be recorded in a graph: not where rows and columns are exchanged.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: "sparse.Convert | sparse.Transpose") -> None:
        self._cusparse = cusparse
        self._op = op
        a, out = op.a, op.out
        assert isinstance(a, Blocks)
        form = self._form = "bsr" if isinstance(op, sparse.Transpose) else str(op.format)
        turned = isinstance(op, sparse.Transpose) or form == "csc"
        self.captures = not turned
        args = self._args = _stored(a)
        if turned:
            args.lines, args.width, args.down, args.across = args.width, args.lines, args.across, args.down
            args.row_step, args.col_step = args.col_step, args.row_step
        args.coordinates = form == "coo"
        self._counted = Count(cusparse)
        args.count = self._counted.address
        self._unit = 1 if form == "bsr" else args.down * args.across
        self._listing: Listing | None = None
        if isinstance(a, sparse.BlockedEllRef):
            self._listing = Listing(cusparse, a, self._counted, self._unit)
        self._turning = Turning(cusparse, maker, a) if turned else None
        part, device = index_of(a).name, cusparse.device
        self._fullest = launcher(device, "fullest", args.lines, args, part=part)
        items = max(a.nnz, max(a.shape) + 1)
        self._write = launcher(device, f"{WRITERS[form]}_{a.values.dtype.itemsize}", items, args, part=part)
        self._room = args.blocks * self._unit
        if out is not None:
            self._room = out.indices.shape[1] if isinstance(out, sparse.BlockedEllRef) else out.values.shape[0]
        self._found: tuple[Listed, int] | None = None

    def query_size(self, stream: "CudaStream", a: Sequence[int], out: None, count: None) -> Extents:
        """Count; on the helper's thread, with the stream idle."""
        self._cusparse.bind(stream)
        listed = self._look(a)
        found = self._counted.read()
        self._found = listed, found
        args = self._args
        if self._form == "blocked_ell":
            return [(args.lines * args.down, found * args.across), (args.lines, found)]
        if self._form == "bsr":
            return [(found, args.down, args.across), (found,)]
        return [(found,)] * (3 if self._form == "coo" else 2)

    def __call__(
        self, stream: "CudaStream", a: Sequence[int], out: Sequence[int], count: int | None = None
    ) -> CudaStatus | None:
        """Write the result."""
        self._cusparse.bind(stream)
        args = self._args
        listed, room = self._found or (self._look(a), self._room)
        self._found = None
        if self._turning is not None:
            listed = self._turning(listed)
        args.pointers, args.cols, args.numbers = listed
        args.src, args.out, args.first_out, args.second_out = a[0], out[0], out[1], out[-1]
        args.most = args.entries = room
        if self._form == "blocked_ell":
            args.entries = args.lines * args.down * room * args.across
        elif self._form == "bsr":
            args.entries = room * args.down * args.across
        elif self._form == "coo":
            args.first_out, args.second_out = out[2], out[1]
        self._write(self._cusparse.stream.native)
        return self._counted.tell(self._op, room, count)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        for step in (self._listing, self._turning, self._counted):
            if step is not None:
                step.close()

    def _look(self, a: Sequence[int]) -> Listed:
        """List the blocks, on the device, and count the entries of the result."""
        if self._listing is not None:
            return self._listing(a[1])
        if self._form == "blocked_ell":
            self._counted.clear()
            self._args.pointers = a[2]
            self._fullest(self._cusparse.stream.native)
        return Listed(a[2], a[1], 0)


class Listing:
    """A step of a plan: the blocks of a blocked-ELL matrix, without the padding, which follows the list.

    There it has a block row and a block column of its own, so that an exchange of rows and columns moves all slots,
    whose number is known, and leaves the padding behind again.

    Args:
        cusparse: Handle and stream.
        a: The matrix.
        counted: Gets the number of blocks,
        unit: Factor of that number.
    """

    def __init__(self, cusparse: Cusparse, a: sparse.BlockedEllRef, counted: Count, unit: int) -> None:
        self._cusparse = cusparse
        args = self._args = _stored(a)
        part, device = index_of(a).name, cusparse.device
        lengths = (args.blocks + 1, args.lines + 2, args.blocks, args.blocks)
        self._memory = [device.allocate(index_of(a).itemsize * n) for n in lengths]
        args.places, *listed = (memory.address for memory in self._memory)
        self._listed = Listed(*listed)
        args.pointers, args.cols, args.numbers = self._listed
        args.count, args.unit = counted.address, unit
        self._mark = launcher(device, "mark_slots", args.blocks, args, part=part)
        self._scan = Scan(cusparse, args.places, args.blocks, part, counted)
        self._list = launcher(device, "make_list", max(args.blocks, args.lines + 1), args, part=part)

    def __call__(self, indices: int) -> Listed:
        """Enqueue it."""
        self._args.indices = indices
        for kernel in (self._mark, self._scan, self._list):
            kernel(self._cusparse.stream.native)
        return self._listed

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._scan.close()
        _release(self._cusparse, self._memory)


class Turning:
    """A step of a plan: cuSPARSE exchanges the rows and columns of a list; the values that it moves are the numbers.

    Args:
        cusparse: Handle and stream.
        maker: A handle for questions, on the thread of the prepare.
        a: The matrix whose blocks are listed.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, a: Blocks) -> None:
        self._cusparse = cusparse
        stored, index, device = _stored(a), index_of(a), cusparse.device
        behind = int(isinstance(a, sparse.BlockedEllRef))  # the row and the column of the padding
        lines, width = stored.lines + behind, stored.width + behind
        like = DTYPES["f32" if index.itemsize == 4 else "f64"]  # moved, not read: any dtype of that size
        numbers: Any = Placeholder(layout_of(like, (stored.blocks,)))
        cols: Any = Placeholder(layout_of(index, (stored.blocks,)))
        pointers: Any = Placeholder(layout_of(index, (lines + 1,)))
        pattern = sparse.CsrRef(numbers, cols, pointers, (lines, width))
        self._converter = Converter(cusparse, maker, sparse.Convert(a=pattern, format="csc"))
        lengths = (width + 1, stored.blocks, stored.blocks, stored.blocks)
        self._memory = [device.allocate(index.itemsize * n) for n in lengths]
        *turned, self._order = (memory.address for memory in self._memory)
        self._turned = Listed(*turned)
        self._args = ListArgs(blocks=stored.blocks, numbers=self._order)
        self._number = launcher(device, "iota", stored.blocks, self._args, part=index.name)

    def __call__(self, listed: Listed) -> Listed:
        """Enqueue it."""
        numbers, turned = listed.numbers, self._turned
        if not numbers:
            self._number(self._cusparse.stream.native)
            numbers = self._order
        self._converter.enqueue((numbers, listed.cols, listed.pointers), (turned.numbers, turned.cols, turned.pointers))
        return turned

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._converter.close()
        _release(self._cusparse, self._memory)


def _stored(a: Blocks) -> ListArgs:
    """Arguments for the layout of the blocks of a matrix."""
    down, across = stored_block(a) or (1, 1)
    args = ListArgs(lines=a.shape[0] // down, width=a.shape[1] // across, down=down, across=across)
    args.blocks, args.row_step, args.col_step = a.indices.size, across, 1
    if isinstance(a, sparse.BlockedEllRef):
        args.each, args.row_step = a.indices.shape[1], a.values.shape[1]
    return args


def _release(cusparse: Cusparse, memory: list[Memory]) -> None:
    for one in memory:
        cusparse.device.release(one)
    memory.clear()
