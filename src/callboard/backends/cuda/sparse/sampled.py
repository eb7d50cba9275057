"""Dense products at the entries of a sparse matrix."""

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.sparse.cusparse import CODES, Cusparse, compute_dtype
from callboard.backends.cuda.sparse.descriptors import Matrix, own
from callboard.backends.cuda.sparse.kernels import Factor, ProductArgs, launcher
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of

if TYPE_CHECKING:
    from callboard.backends.cuda.sparse.library import CudaSparse
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Sampled", "SampledHere", "sampled"]

SIDES = (2, 4, 8, 16, 32, 64)
"""Sides of square blocks that cuSPARSE supports, with as many terms or a multiple."""


@plans(sparse.Sddmm)
def sampled(library: "CudaSparse", op: sparse.Sddmm) -> "Sampled | SampledHere":
    """The plan of a sampled product: cuSPARSE's, or a custom kernel for unsupported cases."""
    terms = op.a.shape[1]
    if isinstance(op.c, sparse.BsrRef):
        down, across = op.c.block
        ours = down != across or down not in SIDES or terms % down != 0
    else:
        ours = op.c.values.dtype.name == "bf16"
    if ours or terms == 0:
        return SampledHere(library.cusparse, op)
    return Sampled(library.cusparse, library.maker, op)


class Sampled:
    """A plan of ``Sddmm`` by cuSPARSE."""

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: sparse.Sddmm) -> None:
        self._cusparse = cusparse
        self._nbytes = op.c.values.nbytes
        self._descriptors: list[tuple[str, int]] = []
        dtype = op.c.values.dtype
        factors = [factor_of(value, compute_dtype(dtype)) for value in (op.alpha, op.beta)]
        self._factors = pointers(cusparse, factors)  # type: ignore[arg-type]
        self._beta_is_array = isinstance(op.beta, Operand)
        self._matrix: Matrix | None = None
        if not self._nbytes:
            return
        dummy = maker.scratch(1)
        self._matrix = Matrix(maker, op.c, dummy)
        self._sides = [own(maker, layout, dummy) for layout in (op.a.layout, op.b.layout)]
        self._descriptors += [("dn_mat", side) for side in self._sides]
        self._compute = CODES[compute_dtype(dtype).name]
        at_factor = maker.question()
        cell = ctypes.c_size_t()
        maker.call("sddmm_buffer_size", *self._arguments(at_factor, at_factor), ctypes.addressof(cell))
        self._scratch = maker.scratch(max(cell.value, 1))

    def __call__(self, stream: "CudaStream", a: int, b: int, c: Sequence[int], out: int, alpha: Any, beta: Any) -> None:
        """Enqueue it."""
        if self._matrix is None:
            return
        cusparse = self._cusparse
        cusparse.bind(stream)
        if c[0] != out and (self._beta_is_array or beta != 0):
            code = cusparse.driver.memcpy_dtod(out, c[0], self._nbytes, stream.native)
            cusparse.driver.check(code, "cuMemcpyDtoDAsync")
        at_alpha, at_beta = self._factors(alpha, beta)
        self._matrix.point((out, c[1], c[2]))
        for side, address in zip(self._sides, (a, b), strict=True):
            cusparse.library.dn_mat_set_values(side, address)
        cusparse.call("sddmm", *self._arguments(at_alpha, at_beta), self._scratch)

    def close(self) -> None:
        """Destroy the descriptors; nothing uses them any more."""
        for kind, descriptor in self._descriptors:
            self._cusparse.make(f"destroy_{kind}", descriptor)
        self._descriptors.clear()
        if self._matrix is not None:
            self._matrix.close()

    def _arguments(self, at_alpha: int, at_beta: int) -> tuple[int, ...]:
        assert self._matrix is not None
        return (0, 0, at_alpha, *self._sides, at_beta, self._matrix.descriptor, self._compute, 0)


class SampledHere:
    """A plan of ``Sddmm`` by a custom kernel: other blocks, bf16 in rows of entries, and sums of no terms."""

    def __init__(self, cusparse: Cusparse, op: sparse.Sddmm) -> None:
        c = op.c
        args = self._args = ProductArgs()
        args.down, args.across = c.block if isinstance(c, sparse.BsrRef) else (1, 1)
        args.lines, args.entries, args.terms = c.indptr.size - 1, c.values.size, op.a.shape[1]
        (args.a_row, args.a_col), (args.b_row, args.b_col) = op.a.strides, op.b.strides
        self._put = [(args.alpha, Factor.setter(op.alpha)), (args.beta, Factor.setter(op.beta))]
        self._run = launcher(
            cusparse.device, f"sample_{c.values.dtype.name}", c.values.size, args, part=index_of(c).name
        )

    def __call__(self, stream: "CudaStream", a: int, b: int, c: Sequence[int], out: int, alpha: Any, beta: Any) -> None:
        """Enqueue it."""
        args = self._args
        if not args.entries:
            return
        args.values, args.indices, args.pointers, args.a, args.b, args.out = *c, a, b, out
        for (factor, put), value in zip(self._put, (alpha, beta), strict=True):
            put(factor, value)
        self._run(stream.native)
