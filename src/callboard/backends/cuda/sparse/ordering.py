"""Entries in order: cuSPARSE sorts them, custom kernels take them and add up duplicates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.sparse.counting import Count, Scan
from callboard.backends.cuda.sparse.kernels import OrderArgs, SparseArgs, launcher
from callboard.core.backend import Memory
from callboard.core.library import Extents, plans
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of, no_room, twice

if TYPE_CHECKING:
    from callboard.backends.cuda.sparse.library import CudaSparse
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Sorted", "too_long"]

INT_MAX = 2**31 - 1


def too_long(op: sparse.Sort) -> str | None:
    """CuSPARSE sorts with 32-bit indices only."""
    if max(*op.a.shape, op.a.nnz) > INT_MAX:
        return f"a is {op.a.shape} with {op.a.nnz} entries; cuSPARSE sorts at most {INT_MAX}"
    return None


@plans(sparse.Sort, sizes=True, always=True, refuses=too_long, captures=False)
class Sorted:
    """A plan of ``Sort``: its size query sorts, its launch writes the entries.

    cuSPARSE's sort cannot be recorded in a graph and may wait for the device, so it is run before the launch.

    Args:
        library: The handles: one that only size queries and launches use, and one for questions, on the thread of the
            prepare.
        op: The message.
    """

    def __init__(self, library: "CudaSparse", op: sparse.Sort) -> None:
        cusparse, maker = library.sizer, library.maker
        self._cusparse = cusparse
        self._op = op
        a, device = op.a, cusparse.device
        n, index = a.nnz, index_of(a)
        rows, cols = a.shape
        self._coordinates = isinstance(a, sparse.CooRef)
        self._lines, self._width = (cols, rows) if isinstance(a, sparse.CscRef) else (rows, cols)
        self._nbytes, self._wide = index.itemsize * (self._lines + 1), index.itemsize == 8
        self._memory: list[Memory] = []
        major, minor, order = (self._take(4 * n) for _ in range(3))
        places, self._count = self._take(4 * (n + 1)), Count(cusparse)
        self._major, self._minor = major, minor
        self._majors = self._take(index.itemsize * n) if self._wide else major
        work = maker.call("xcoosort_buffer_size_ext", self._lines, self._width, n, major, minor) if n else 0
        self._work = self._take(int(work))
        args = self._args = OrderArgs(entries=n, lines=self._lines, coordinates=self._coordinates)
        args.major, args.minor, args.order, args.places = major, minor, order, places
        self._copies = SparseArgs(entries=n, major=self._lines)
        self._expand = launcher(device, f"expand_{index.name}", n, self._copies)
        self._narrow = launcher(device, "narrow", n, self._copies)
        self._iota = launcher(device, "iota", n, args)
        self._flag = launcher(device, "flag", n, args)
        self._scan = Scan(cusparse, places, n, "i32", self._count)
        self._take_all = launcher(device, f"take_{a.values.dtype.itemsize}_{index.name}", n, args)
        items = max(n, self._lines + 1)
        self._merge = launcher(device, f"merge_{a.values.dtype.name}_{index.name}", items, args)
        self._found = 0

    def query_size(self, stream: "CudaStream", a: Sequence[int], out: Any, count: int | None) -> Extents:
        """Sort, and find the extents of open outputs; on the helper's thread, with the stream idle."""
        self._cusparse.bind(stream)
        op = self._op
        self._found = self._args.entries
        if self._found:
            self._sort(a)
        if op.duplicates == "keep":
            return []
        places = self._places() if self._found else 0
        if op.duplicates == "refuse":
            if places < self._found:
                raise twice("sparse.sort", self._found - places)
            return []
        self._found = places
        if op.out is not None:
            if places > op.out.nnz:
                raise no_room(op, places, op.out.nnz)
            return []
        return [(places,)] * (3 if self._coordinates else 2)

    def __call__(self, stream: "CudaStream", a: Sequence[int], out: Sequence[int], count: int | None) -> None:
        """Write the entries."""
        driver, native, args = self._cusparse.driver, stream.native, self._args
        if count is not None:
            for at, word in ((count, self._found & 0xFFFFFFFF), (count + 4, self._found >> 32)):
                driver.check(driver.memset_32(at, word, 1, native), "cuMemsetD32Async")
        sums = self._op.duplicates == "sum" and args.entries
        if not self._coordinates and not sums:
            driver.check(driver.memcpy_dtod(out[2], a[2], self._nbytes, native), "cuMemcpyDtoDAsync")
        if not args.entries:
            return
        args.src, args.out, args.room = a[0], out[0], self._found
        args.first_out, args.second_out = (out[2], out[1]) if self._coordinates else (out[1], out[2])
        args.second = a[2]
        (self._merge if sums else self._take_all)(native)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._count.close()
        self._scan.close()
        for memory in self._memory:
            self._cusparse.device.release(memory)
        self._memory.clear()

    def _sort(self, a: Sequence[int]) -> None:
        native, n = self._cusparse.stream.native, self._args.entries
        if self._coordinates:
            self._bring(a[1], self._major)
            self._bring(a[2], self._minor)
        else:
            self._copies.second, self._copies.second_out = a[2], self._majors
            self._expand(native)
            if self._wide:
                self._bring(self._majors, self._major)
            self._bring(a[1], self._minor)
        self._iota(native)
        self._cusparse.call(
            "xcoosort_by_row", self._lines, self._width, n, self._major, self._minor, self._args.order, self._work
        )

    def _bring(self, src: int, out: int) -> None:
        """Indices as 32-bit ones."""
        driver, native = self._cusparse.driver, self._cusparse.stream.native
        if self._wide:
            self._copies.src, self._copies.out = src, out
            self._narrow(native)
        else:
            driver.check(driver.memcpy_dtod(out, src, 4 * self._args.entries, native), "cuMemcpyDtoDAsync")

    def _places(self) -> int:
        """Return the number of places with entries; their positions are left on the device."""
        native = self._cusparse.stream.native
        self._flag(native)
        self._scan(native)
        return self._count.read()

    def _take(self, nbytes: int) -> int:
        self._memory.append(self._cusparse.device.allocate(max(nbytes, 1)))
        return self._memory[-1].address
