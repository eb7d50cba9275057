"""Plans that prune, check, compress and decompress structured matrices.

Pruning and checks are custom kernels. cuSPARSELt 0.8.0 keeps the wrong elements beside -128 (whose magnitude i8 cannot
represent), infinities and NaN, requires extents to be multiples of 32 bytes, and poisons the context if a matrix does
not start at a multiple of 16 (observed on an H200).
"""

import struct
from typing import TYPE_CHECKING

from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse_lt.cusparselt import CusparseLt, Descriptors, check_address
from callboard.backends.cuda.sparse_lt.kernels import StructuredArgs, launcher
from callboard.backends.cuda.sparse_lt.rules import refuses_compressed, refuses_matrix
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel.blas_lt.checks import rows
from callboard.kernel.sparse_lt import Check, Compress, Decompress, Prune
from callboard.kernel.sparse_lt.checks import not_structured
from callboard.kernel.sparse_lt.structured import compressed_bytes, group_of, tile_choices

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Checking", "Compressing", "Decompressing", "Pruning"]

STATUS = 4
"""Bytes of it."""


@plans(Prune)
class Pruning:
    """A plan of ``Prune``: ``plan(stream, x, out)``."""

    def __init__(self, lt: CusparseLt, op: Prune) -> None:
        source, group = op.x.layout, group_of(op.x.dtype)
        args = self._args = _arguments(op, source)
        args.out_matrix, args.out_row = _steps(op, _target(op))
        if op.algorithm == "tile":
            args.rows //= group.size
            masks = [sum(stays << at for at, stays in enumerate(choice)) for choice in tile_choices(group)]
            args.choices[: len(masks)] = masks
        self._run = launcher(lt.device, f"prune_{op.algorithm}_{source.dtype}", args)

    def __call__(self, stream: "CudaStream", x: int, out: int) -> None:
        self._args.x, self._args.out = x, out
        self._run(stream.native)


@plans(Check)
class Checking:
    """A plan of ``Check``: ``plan(stream, x, out)``."""

    def __init__(self, lt: CusparseLt, op: "Check | Compress") -> None:
        self._driver = lt.driver
        self._args = _arguments(op, op.x.layout)
        self._run = launcher(lt.device, f"check_{op.x.dtype}", self._args)

    def __call__(self, stream: "CudaStream", x: int, out: int) -> None:
        self._driver.check(self._driver.memset_32(out, 0, 1, stream.native), "cuMemsetD32Async")
        self._args.x, self._args.status = x, out
        self._run(stream.native)


@plans(Compress, refuses=refuses_matrix)
class Compressing:
    """A plan of ``Compress``: ``plan(stream, x, out)`` returns a status, a ``ShapeError`` without the pattern.

    A call of cuSPARSELt for each matrix: those of a batch have no common form.
    """

    def __init__(self, lt: CusparseLt, op: Compress) -> None:
        self._lt, self._layout = lt, op.x.layout
        self._made = Descriptors(lt)
        dtype, shape = self._layout.dtype, self._layout.shape
        self._room = compressed_bytes(dtype, shape[-2:])
        found = rows(op, "x", self._layout)
        self._apart = found.step * dtype.itemsize
        self._count = found.matrices if self._layout.size else 0
        if not self._count:
            return
        try:
            self._check = Checking(lt, op)
            self._status = self._made.memory(STATUS)
            self._matrix = self._made.structured(dtype, found.form.rows, found.form.cols, found.form.ld)
            size, buffer = lt.call("sp_mma_compressed_size2", self._matrix)
            if size > self._room:
                raise UnsupportedOp(
                    f"cuda, sparse_lt.compress: cuSPARSELt needs {size} bytes for {dtype}{list(shape[-2:])} and there "
                    f"is room for {self._room}; take its version 0.8"
                )
            self._buffer = self._made.memory(buffer)
        except BaseException:  # any exception: release the parts made so far
            self.close()
            raise

    def __call__(self, stream: "CudaStream", x: int, out: tuple[int]) -> CudaStatus | None:
        if not self._count:
            return None
        (data,) = out
        check_address("sparse_lt.compress", x=x, data=data)
        self._check(stream, x, self._status)
        for at in range(self._count):
            source, target = x + at * self._apart, data + at * self._room
            self._lt.call("sp_mma_compress2", self._matrix, 1, 0, source, target, self._buffer, stream.native)
        return CudaStatus(self._status, STATUS, self._check_status)

    def _check_status(self, outcome: bytes) -> None:
        if struct.unpack("<i", outcome)[0]:
            raise not_structured("sparse_lt.compress", self._layout)

    def close(self) -> None:
        """Free descriptors and memory."""
        self._made.close()


@plans(Decompress, refuses=refuses_compressed)
class Decompressing:
    """A plan of ``Decompress``: ``plan(stream, a, out)``.

    cuSPARSELt has no such call. Where its version 0.8 keeps what on compute capability 9.0 was found by compressing
    matrices with known entries, and is not promised for others.
    """

    def __init__(self, lt: CusparseLt, op: Decompress) -> None:
        lt.check_known("sparse_lt.decompress", "where metadata lies", "keep the matrix beside its compressed form")
        target = _target(op)
        args = self._args = _arguments(op, target)
        args.room = compressed_bytes(target.dtype, target.shape[-2:])
        args.out_matrix, args.out_row = args.x_matrix, args.x_row
        self._run = launcher(lt.device, f"decompress_{target.dtype.itemsize}", args)

    def __call__(self, stream: "CudaStream", a: tuple[int], out: int) -> None:
        self._args.x, self._args.out = a[0], out
        self._run(stream.native)


AnyOp = Prune | Check | Compress | Decompress


def _target(op: "Prune | Decompress") -> Layout:
    return op.infer()["out"] if op.out is None else op.out.layout


def _arguments(op: AnyOp, layout: Layout) -> StructuredArgs:
    outer, k = layout.shape[-2:]
    matrix, row = _steps(op, layout)
    matrices = layout.shape[0] if layout.ndim == 3 else 1
    return StructuredArgs(
        matrices=matrices, rows=outer, groups=k // group_of(layout.dtype).size, x_matrix=matrix, x_row=row
    )


def _steps(op: AnyOp, layout: Layout) -> tuple[int, int]:
    """Elements from matrix to matrix and from row to row."""
    found = rows(op, "x", layout)
    return found.step, found.form.ld
