"""Matrices of blocks: what is converted to them and from them, by kernels of ours."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.cuda.launching import THREADS
from callboard.backends.cuda.sparse.conversions import Converter
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.kernels import BlockArgs, SparseArgs, launcher
from callboard.core.backend import Memory
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import Extents
from callboard.core.operand import Placeholder
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of, no_room

__all__ = ["CheckingPadded", "ToBlocks", "Transposed", "from_blocks", "to_dense"]


class ToBlocks:
    """A plan: the blocks of each block row are counted, summed up to pointers, and written, then their elements.

    Of ``FromDense`` to a ``BsrRef`` or ``BlockedEllRef``, and of ``Convert`` from a ``CsrRef`` to a ``BsrRef``.

    Args:
        cusparse: Handle and stream.
        op: The message.
    """

    def __init__(self, cusparse: Cusparse, op: "sparse.FromDense | sparse.Convert") -> None:
        self._cusparse = cusparse
        self._op = op
        assert op.block is not None
        device, (down, across), index = cusparse.device, op.block, "i32"
        if isinstance(op, sparse.FromDense):
            shape, dtype, index, source = op.dense.shape, op.dense.dtype, str(op.index), None
        else:
            assert isinstance(op.a, sparse.CsrRef)
            shape, dtype, index, source = op.a.shape, op.a.values.dtype, index_of(op.a).name, op.a
        args = self._args = BlockArgs(lines=shape[0] // down, width=shape[1] // across, down=down, across=across)
        self._ell = op.format == "blocked_ell"
        args.ell = self._ell
        self._nbytes = DTYPES[index].itemsize * (args.lines + 1)
        self._memory = device.allocate(self._nbytes + 256)
        args.count, args.pointers = self._memory.address, self._memory.address + 256
        if isinstance(op, sparse.FromDense):
            args.row_step, args.col_step = op.dense.strides
        kind = "entries" if source is not None else "half" if dtype.itemsize == 2 else dtype.name
        self._count = launcher(device, f"count_{kind}", args.lines, args, part=index, each=THREADS)
        self._write = launcher(device, f"write_{kind}", args.lines, args, part=index, each=THREADS)
        scan = SparseArgs(major=args.lines, pointers=args.pointers, count=args.count)
        self._scan = launcher(device, f"scan_{index}", 1, scan)
        self._entries = None if source is None else source.nnz
        most = shape[0] * shape[1] if source is None else source.nnz
        self._fill = launcher(
            device, f"{'gather' if source is None else 'pack'}_{dtype.itemsize}", most, args, part=index
        )
        self._blank = None if source is None else launcher(device, f"blank_{dtype.itemsize}", most, args, part=index)
        self._room = -1
        if op.out is not None:
            self._room = op.out.indices.shape[1] if isinstance(op.out, sparse.BlockedEllRef) else op.out.values.shape[0]
        self._found = 0

    def measure(self, source: "int | Sequence[int]") -> Extents:
        """Count; on the helper's thread, with the stream idle."""
        self._look(source)
        counted = self._cusparse.device.read_back(self._cusparse.stream, self._memory.address, 8)
        self._cusparse.stream.synchronize()
        (found,) = struct.unpack("<q", counted.take())
        self._found = found
        args = self._args
        if self._ell:
            return [(args.lines * args.down, found * args.across), (args.lines, found)]
        return [(found, args.down, args.across), (found,)]

    def launch(self, source: "int | Sequence[int]", out: Sequence[int], count: int | None) -> Callable[[], None] | None:
        """Write the blocks."""
        cusparse, args, given = self._cusparse, self._args, self._op.out is not None
        native, driver = cusparse.stream.native, cusparse.driver
        if given:
            self._look(source)
        room = self._room if given else self._found
        args.room = room
        args.most = room if self._ell else 0
        self._point(source)
        args.out, args.indices = out[0], out[1]
        self._write(native)
        if self._blank is not None:
            self._blank(native)
        if self._entries is not None:
            args.entries = self._entries
        elif self._ell:
            args.entries = args.lines * args.down * room * args.across
        else:
            args.entries = room * args.down * args.across
        self._fill(native)
        if not self._ell:
            driver.check(driver.memcpy_dtod(out[2], args.pointers, self._nbytes, native), "cuMemcpyDtoDAsync")
        if count is None:
            return None
        driver.check(driver.memcpy_dtod(count, self._memory.address, 8, native), "cuMemcpyDtoDAsync")
        counted = cusparse.device.read_back(cusparse.stream, self._memory.address, 8)

        def enough() -> None:
            (found,) = struct.unpack("<q", counted.take())
            if found > room:
                raise no_room(self._op, found, room)

        return enough

    def close(self) -> None:
        """Give the memory back; nothing uses it any more."""
        self._cusparse.device.release(self._memory)

    def _look(self, source: "int | Sequence[int]") -> None:
        """Count the blocks, on the device."""
        native, driver = self._cusparse.stream.native, self._cusparse.driver
        self._point(source)
        driver.check(driver.memset_8(self._memory.address, 0, 8, native), "cuMemsetD8Async")
        self._count(native)
        if not self._ell:
            self._scan(native)

    def _point(self, source: "int | Sequence[int]") -> None:
        args = self._args
        if isinstance(source, int):
            args.src = source
        else:
            args.src, args.first, args.second = source


def to_dense(cusparse: Cusparse, op: sparse.ToDense) -> Callable[[Sequence[int], int], None]:
    """``run(a, out)`` for a matrix of blocks: zeros, then the blocks."""
    out = op.infer()["out"] if op.out is None else op.out.layout
    if out.size == 0:
        return lambda a, out: None
    args, device = _stored(op.a), cusparse.device
    args.row_step, args.col_step = out.strides
    zeros = SparseArgs(major=out.shape[0], minor=out.shape[1], major_step=out.strides[0], minor_step=out.strides[1])
    clear = launcher(device, f"clear_{out.dtype.itemsize}", out.size, zeros)
    spread = launcher(device, f"spread_{out.dtype.itemsize}", op.a.nnz, args, part=index_of(op.a).name)

    def run(parts: Sequence[int], at: int) -> None:
        zeros.out = args.out = at
        args.src, args.indices, args.pointers = parts[0], parts[1], parts[-1]
        clear(cusparse.stream.native)
        spread(cusparse.stream.native)

    return run


def from_blocks(cusparse: Cusparse, op: sparse.Convert) -> Callable[[Sequence[int], Sequence[int]], None]:
    """``run(a, out)``: a ``CsrRef`` of all that the blocks of a ``BsrRef`` hold."""
    args = _stored(op.a)
    items = max(op.a.nnz, op.a.shape[0] + 1)
    unpack = launcher(cusparse.device, f"unpack_{op.a.values.dtype.itemsize}", items, args, part=index_of(op.a).name)

    def run(parts: Sequence[int], out: Sequence[int]) -> None:
        args.src, args.indices, args.pointers = parts
        args.out, args.first_out, args.second_out = out
        unpack(cusparse.stream.native)

    return run


class Transposed:
    """A plan of ``Transpose``: cuSPARSE exchanges rows and columns of the pattern, and the blocks follow."""

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: sparse.Transpose) -> None:
        a = op.a
        blocks, down, across = a.values.shape
        self._cusparse = cusparse
        pattern: Any = exchange(a)
        self._converter = Converter(cusparse, maker, pattern)
        self._memory: list[Memory] = [cusparse.device.allocate(max(4 * blocks, 1)) for _ in range(2)]
        self._order, self._new_order = (memory.address for memory in self._memory)
        index = index_of(a).name
        numbers = BlockArgs(entries=blocks, out=self._order)
        self._number = launcher(cusparse.device, "iota", blocks, numbers, part=index)
        args = self._args = BlockArgs(down=across, across=down, entries=a.nnz, first=self._new_order)
        self._turn = launcher(cusparse.device, f"turn_{a.values.dtype.itemsize}", a.nnz, args, part=index)

    def __call__(self, a: Sequence[int], out: Sequence[int]) -> None:
        """Enqueue it."""
        self._number(self._cusparse.stream.native)
        self._converter((self._order, a[1], a[2]), (self._new_order, out[1], out[2]))
        self._args.src, self._args.out = a[0], out[0]
        self._turn(self._cusparse.stream.native)

    def close(self) -> None:
        """Give the memory back; nothing uses it any more."""
        self._converter.close()
        for memory in self._memory:
            self._cusparse.device.release(memory)
        self._memory.clear()


def exchange(a: sparse.BsrRef) -> sparse.Convert:
    """The message that exchanges the rows and columns of a pattern of blocks; its values are their numbers."""
    blocks, down, across = a.values.shape
    numbers: Any = Placeholder(layout_of(DTYPES["f32"], (blocks,)))  # moved, not read: any dtype of 4 bytes
    pattern = sparse.CsrRef(numbers, a.indices, a.indptr, (a.shape[0] // down, a.shape[1] // across))
    return sparse.Convert(a=pattern, format="csc")


class CheckingPadded:
    """What counts the faults of a blocked-ELL matrix, at an address."""

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
    """Arguments that say how the blocks of a matrix lie."""
    assert isinstance(a, sparse.BsrRef | sparse.BlockedEllRef)
    down, across = a.block if isinstance(a, sparse.BsrRef) else (a.block, a.block)
    args = BlockArgs(lines=a.shape[0] // down, width=a.shape[1] // across, down=down, across=across, entries=a.nnz)
    if isinstance(a, sparse.BlockedEllRef):
        args.ell, args.most = 1, a.indices.shape[1]
    return args
