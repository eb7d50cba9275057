"""Conversions between dense and sparse and between formats that store entries.

Custom kernels convert, except for the exchange of rows and columns, which is cuSPARSE's ``csr2csc`` (32-bit indices;
longer ones are narrowed for it and widened again).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse.counting import Count, Scan
from callboard.backends.cuda.sparse.cusparse import CODES, Cusparse
from callboard.backends.cuda.sparse.kernels import WARP, SparseArgs, launcher
from callboard.core.backend import Memory
from callboard.core.library import Extents
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["ByRows", "Converter", "FromDense", "to_dense", "too_long"]

INT_MAX = 2**31 - 1


class FromDense:
    """A plan: entries are counted, summed up to pointers, and written.

    Args:
        cusparse: Handle and stream.
        op: The message.
    """

    def __init__(self, cusparse: Cusparse, op: sparse.FromDense) -> None:
        self._cusparse = cusparse
        self._op = op
        layout, index = op.dense.layout, str(op.index)
        rows, cols = layout.shape
        by_cols = op.format == "csc"
        self._lines = cols if by_cols else rows
        self._nbytes = (4 if index == "i32" else 8) * (self._lines + 1)
        self._counted = Count(cusparse)
        self._memory = cusparse.device.allocate(self._nbytes)
        args = self._args = SparseArgs(major=self._lines, minor=rows if by_cols else cols)
        down, across = layout.strides
        args.major_step, args.minor_step = (across, down) if by_cols else (down, across)
        args.coordinates = op.format == "coo"
        args.count, args.pointers = self._counted.address, self._memory.address
        kind = f"{layout.dtype.name}_{index}"
        device = cusparse.device
        self._count = launcher(device, f"count_{kind}", self._lines, args, each=WARP)
        self._scan = Scan(cusparse, args.pointers, self._lines, index, self._counted)
        self._write = launcher(device, f"write_{kind}", self._lines, args, each=WARP)
        self._found = 0

    def query_size(self, stream: "CudaStream", dense: int, out: None, count: None) -> Extents:
        """Count; on the helper's thread, with the stream idle."""
        self._cusparse.bind(stream)
        self._look(dense)
        self._found = self._counted.read()
        return [(self._found,)] * (3 if self._op.format == "coo" else 2)

    def __call__(self, stream: "CudaStream", dense: int, out: Sequence[int], count: int | None) -> CudaStatus | None:
        """Write the entries."""
        cusparse, given = self._cusparse, self._op.out
        cusparse.bind(stream)
        if given is not None:
            self._look(dense)
        args = self._args
        args.src, args.out, args.first_out, args.second_out = dense, out[0], out[1], out[2]
        native, check, driver = stream.native, cusparse.driver.check, cusparse.driver
        if self._op.format == "coo":
            args.first_out, args.second_out = out[2], out[1]
        else:
            check(driver.memcpy_dtod(out[2], args.pointers, self._nbytes, native), "cuMemcpyDtoDAsync")
        args.room = self._found if given is None else given.values.size
        if args.minor:
            self._write(native)
        return self._counted.tell(self._op, args.room, count)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._counted.close()
        self._scan.close()
        self._cusparse.device.release(self._memory)

    def _look(self, dense: int) -> None:
        native = self._cusparse.stream.native
        self._args.src = dense
        self._count(native)
        self._scan(native)


def to_dense(cusparse: Cusparse, op: sparse.ToDense) -> "Callable[[CudaStream, Sequence[int], int], None]":
    """``run(stream, a, out)``: zeros, then the entries; those of one place side by side are added up in their order."""
    a, out = op.a, op.infer()["out"] if op.out is None else op.out.layout
    if out.size == 0:
        return lambda stream, a, out: None
    args = SparseArgs(entries=a.nnz)
    rows, cols = a.shape
    down, across = out.strides
    by_cols = isinstance(a, sparse.CscRef)
    args.major, args.minor = (cols, rows) if by_cols else (rows, cols)
    args.major_step, args.minor_step = (across, down) if by_cols else (down, across)
    args.coordinates = isinstance(a, sparse.CooRef)
    device = cusparse.device
    clear = launcher(device, f"clear_{out.dtype.itemsize}", out.size, args)
    scatter = launcher(device, f"scatter_{out.dtype.name}_{index_of(a).name}", a.nnz, args)

    def run(stream: "CudaStream", parts: Sequence[int], at: int) -> None:
        args.out, args.src = at, parts[0]
        args.first, args.second = (parts[2], parts[1]) if args.coordinates else (parts[1], parts[2])
        clear(stream.native)
        if args.entries:
            scatter(stream.native)

    return run


def too_long(op: "sparse.Convert | sparse.Transpose") -> str | None:
    """CuSPARSE exchanges rows and columns with 32-bit indices only."""
    a = op.a
    stored = a.indices.size if isinstance(a, sparse.BlockedEllRef) else a.values.shape[0]
    exchanges = isinstance(op, sparse.Transpose) or op.format == "csc" or isinstance(a, sparse.CscRef)
    if exchanges and max(*a.shape, stored) > INT_MAX:
        return f"a is {a.shape} with {stored} entries or blocks; cuSPARSE converts at most {INT_MAX}"
    return None


class Converter:
    """A plan of ``Convert`` between formats that store entries.

    Rows are made from pointers, pointers from rows, or rows and columns exchanged.

    Attributes:
        captures: True if it can be recorded in a graph: not an exchange, since cuSPARSE's waits for the device.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: sparse.Convert) -> None:
        self._cusparse = cusparse
        self._memory: list[Memory] = []
        self._source = type(op.a)
        self._target = op.format
        a = op.a
        self._index = index_of(a)
        self._entries = n = a.nnz
        rows, cols = a.shape
        size, item = self._index.itemsize, a.values.dtype.itemsize
        self._nbytes, self._value_bytes = n * size, n * item
        args = self._args = SparseArgs(entries=n, major=rows)
        device, name = cusparse.device, self._index.name
        self._expand = launcher(device, f"expand_{name}", n, args)
        self._compress = launcher(device, f"compress_{name}", rows + 1, args)
        self._exchanges = isinstance(a, sparse.CscRef) or op.format == "csc"
        self.captures = not self._exchanges
        if not self._exchanges:
            return
        # The side that csr2csc reads: rows of a CsrRef or CooRef, columns of a CscRef taken as rows.
        self._major, self._minor = (cols, rows) if isinstance(a, sparse.CscRef) else (rows, cols)
        self._pointers = self._take(size * (rows + 1))  # of the rows, unless they are kept elsewhere
        self._parts = [self._take(4 * length) for length in (n, self._major + 1, n, self._minor + 1)]
        self._small = SparseArgs()
        self._narrow = [launcher(device, "narrow", length, self._small) for length in (n, self._major + 1)]
        self._widen = [launcher(device, "widen", length, self._small) for length in (n, self._minor + 1)]
        self._value = CODES["f16" if item == 2 else a.values.dtype.name]
        self._work = 0
        if n:
            dummy = maker.scratch(1)
            question = (self._major, self._minor, n, *[dummy] * 6, self._value, 1, 0, 1)
            self._work = maker.scratch(max(int(maker.call("csr2csc_ex2_buffer_size", *question)), 1))

    def __call__(self, stream: "CudaStream", a: Sequence[int], out: Sequence[int], count: None) -> None:
        """Enqueue it."""
        self._cusparse.bind(stream)
        self.enqueue(a, out)

    def enqueue(self, a: Sequence[int], out: Sequence[int]) -> None:
        """Enqueue it as a step, if the handle enqueues now; addresses of the parts, in the order of the classes."""
        if not self._exchanges:
            self._copy(out[0], a[0], self._value_bytes)
            if self._target == "coo":  # from CSR: (values, indices, indptr) to (values, rows, cols)
                self._copy(out[2], a[1], self._nbytes)
                self._rows_of(a[2], out[1])
            else:  # from COO
                self._copy(out[1], a[2], self._nbytes)
                self._pointers_of(a[1], out[2])
            return
        if self._source is sparse.CooRef:
            self._pointers_of(a[1], self._pointers)
            parts = (a[0], a[2], self._pointers)
        else:
            parts = (a[0], a[1], a[2])
        if self._target == "coo":  # from CSC, by way of CSR
            self._exchange(parts, (out[0], out[2], self._pointers))
            self._rows_of(self._pointers, out[1])
        else:
            self._exchange(parts, (out[0], out[1], out[2]))

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        for memory in self._memory:
            self._cusparse.device.release(memory)
        self._memory.clear()

    def _exchange(self, source: tuple[int, int, int], target: tuple[int, int, int]) -> None:
        """Values, indices and pointers of one side to those of the other."""
        cusparse, narrow = self._cusparse, self._index.itemsize == 8
        values, indices, pointers = source
        out_values, out_indices, out_pointers = target
        native, driver = cusparse.stream.native, cusparse.driver
        if not self._entries:
            nbytes = self._index.itemsize * (self._minor + 1)
            driver.check(driver.memset_8(out_pointers, 0, nbytes, native), "cuMemsetD8Async")
            return
        small = self._parts
        if narrow:
            for run, length, src, out in zip(
                self._narrow, (self._entries, self._major + 1), (indices, pointers), small[:2], strict=True
            ):
                self._resize(run, length, src, out)
            indices, pointers = small[:2]
        into = (small[2], small[3]) if narrow else (out_indices, out_pointers)
        cusparse.call(
            "csr2csc_ex2", self._major, self._minor, self._entries, values, pointers, indices, out_values, into[1],
            into[0], self._value, 1, 0, 1, self._work,
        )  # fmt: skip
        if narrow:
            for run, length, src, out in zip(
                self._widen, (self._entries, self._minor + 1), into, (out_indices, out_pointers), strict=True
            ):
                self._resize(run, length, src, out)

    def _resize(self, run: Callable[[int], None], length: int, src: int, out: int) -> None:
        self._small.entries, self._small.src, self._small.out = length, src, out
        run(self._cusparse.stream.native)

    def _rows_of(self, pointers: int, out: int) -> None:
        self._args.second, self._args.second_out = pointers, out
        if self._entries:
            self._expand(self._cusparse.stream.native)

    def _pointers_of(self, rows: int, out: int) -> None:
        self._args.second, self._args.second_out = rows, out
        self._compress(self._cusparse.stream.native)

    def _copy(self, out: int, src: int, nbytes: int) -> None:
        driver = self._cusparse.driver
        if nbytes:
            driver.check(driver.memcpy_dtod(out, src, nbytes, self._cusparse.stream.native), "cuMemcpyDtoDAsync")

    def _take(self, nbytes: int) -> int:
        self._memory.append(self._cusparse.device.allocate(max(nbytes, 1)))
        return self._memory[-1].address


class ByRows:
    """The entries of a matrix as a ``CsrRef`` has them: in its own arrays, or in some of the plan's.

    Attributes:
        captures: True if that can be recorded in a graph.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, a: sparse.SparseRef) -> None:
        self._cusparse = cusparse
        self._memory: list[Memory] = []
        self._converter: Converter | None = None
        self.captures = True
        if isinstance(a, sparse.CsrRef):
            return
        sizes = [a.shape[0] + 1]
        if isinstance(a, sparse.CscRef):
            self._converter = Converter(cusparse, maker, sparse.Convert(a=a, format="csr"))
            self.captures = False
            self._memory.append(cusparse.device.allocate(a.values.layout.nbytes))
            sizes = [a.nnz, a.shape[0] + 1]
        else:
            self._args = SparseArgs(entries=a.nnz, major=a.shape[0])
            self._compress = launcher(cusparse.device, f"compress_{index_of(a).name}", a.shape[0] + 1, self._args)
        self._memory += [cusparse.device.allocate(index_of(a).itemsize * n) for n in sizes]

    def __call__(self, a: Sequence[int]) -> tuple[int, int, int]:
        """Values, columns and pointers, as they will be when the stream has passed."""
        at = [memory.address for memory in self._memory]
        if not at:
            return a[0], a[1], a[2]
        if self._converter is None:
            self._args.second, self._args.second_out = a[1], at[0]
            self._compress(self._cusparse.stream.native)
            return a[0], a[2], at[0]
        self._converter.enqueue(a, at)
        return at[0], at[1], at[2]

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        if self._converter is not None:
            self._converter.close()
        for memory in self._memory:
            self._cusparse.device.release(memory)
        self._memory.clear()
