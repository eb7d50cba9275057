"""Products of a sparse and a dense matrix."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.copies import Copier, copier
from callboard.backends.cuda.launching import THREADS, kernel_launcher
from callboard.backends.cuda.sparse.cusparse import CODES, Cusparse, compute_dtype
from callboard.backends.cuda.sparse.descriptors import Matrix, by_rows, dense
from callboard.backends.cuda.sparse.kernels import WARP, Factor, ProductArgs, RowArgs, launcher
from callboard.core.backend import Memory
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.operand import Operand, operands_of
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of

if TYPE_CHECKING:
    from callboard.backends.cuda.sparse.library import CudaSparse
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["BlockProduct", "DenseProduct", "RowProduct", "dense_product", "why_not"]

Product = sparse.SpMv | sparse.SpMm
REPEATABLE: dict[tuple[type[Any], type[Any]], int] = {
    (sparse.SpMv, sparse.CsrRef): 3,
    (sparse.SpMv, sparse.CooRef): 4,
    (sparse.SpMm, sparse.CsrRef): 12,
    (sparse.SpMm, sparse.CooRef): 2,
}
"""The ``cusparseSpMVAlg_t`` and ``cusparseSpMMAlg_t`` that give the same bits each time, for matrices that are not
transposed."""
ELL_CORES = ("f16", "bf16", "f64")
"""Dtypes that cuSPARSE multiplies by blocked-ELL matrices at full precision; it rounds f32 to TF32."""
ITEMS = 9 * THREADS
"""Rows and entries of a block in a product by rows (``ITEMS``)."""
ROW_DTYPES = ("f32", "f64", "c64", "c128")
FEW_ENTRIES = 1 << 22
"""Beyond this cuSPARSE is faster (H200: 83 µs for 10 million entries of f32, ours 88; 23 and 21 µs for 2 million)."""
TILE, TILE_COLS = 4, 32
"""Rows and columns that a thread of the kernels has in a product (``SIDE``), and how many columns suffice."""


def why_not(op: Product) -> str | None:
    """The reason why a product is unsupported: block matrices are not transposed; not all orders are repeatable."""
    a = op.a
    if isinstance(a, sparse.BsrRef | sparse.BlockedEllRef):
        way = "sparse.convert a to bsr, and " if isinstance(a, sparse.BlockedEllRef) else ""
        says = f"matrices of blocks are multiplied as they lie; {way}sparse.transpose makes the other"
        return says if op.transpose else None
    if not op.deterministic:
        return None
    if isinstance(a, sparse.CscRef) and op.transpose and op.conj and a.values.dtype.is_complex:
        return "deterministic: cuSPARSE conjugates only what it transposes; conjugate a.values and leave conj out"
    if op.transpose is not isinstance(a, sparse.CscRef):
        form = "csr" if isinstance(a, sparse.CscRef) else "csc"
        return (
            "deterministic: cuSPARSE adds up in any order where it goes through a matrix against its order; "
            f"sparse.convert a to {form} first"
        )
    return None


@plans(sparse.SpMm, sparse.SpMv, refuses=why_not)
def dense_product(library: "CudaSparse", op: Product) -> "DenseProduct | BlockProduct | RowProduct":
    """The plan of a product: cuSPARSE's, or custom kernels where they are faster, and for blocks it does not take."""
    a = op.a
    if isinstance(op, sparse.SpMv) and _by_rows(op):
        return RowProduct(library.cusparse, library.maker, op)
    if isinstance(a, sparse.BsrRef):
        down, across = a.block
        ours = down != across or (down == 1 and isinstance(op, sparse.SpMv))
    elif isinstance(a, sparse.BlockedEllRef):
        arrays = isinstance(op.alpha, Operand) or isinstance(op.beta, Operand)  # cuSPARSE takes numbers of the host
        ours = a.padded or arrays or a.values.dtype.name not in ELL_CORES or index_of(a).name != "i32"
    else:
        ours = False
    return BlockProduct(library.cusparse, op) if ours else DenseProduct(library.cusparse, library.maker, op)


def _by_rows(op: "sparse.SpMv") -> bool:
    """True if the pointers are those of the result's elements, and a product by :class:`RowProduct` is the faster."""
    a = op.a
    if a.nnz > FEW_ENTRIES and not op.deterministic:
        return False
    if not isinstance(a, sparse.CsrRef | sparse.CscRef) or isinstance(a, sparse.CscRef) is not op.transpose:
        return False
    conjugated = op.conj and a.values.dtype.is_complex
    return a.values.dtype.name in ROW_DTYPES and not conjugated


def _operands(op: Product) -> "tuple[Operand, Operand | None, Layout]":
    """The dense factor, the addend, and the layout of the result."""
    b, c = (op.x, op.y) if isinstance(op, sparse.SpMv) else (op.b, op.c)
    return b, c, op.infer()["out"] if op.out is None else op.out.layout


class Addend:
    """The addend of a product: copied into the result, and scaled by the product.

    Args:
        cusparse: The handle that executes.
        op: The message.
    """

    def __init__(self, cusparse: Cusparse, op: Product) -> None:
        _, c, out = _operands(op)
        self._is_array = isinstance(op.beta, Operand)
        self._copy: Copier | None = None
        if c is not None and out.size:
            self._copy = copier(cusparse.driver, cusparse.device.kernels, c.layout, out)

    def bring(self, stream: int, c: int | None, out: int, beta: Any) -> None:
        """Enqueue the copy, if there is anything to add."""
        if self._copy is not None and c is not None and c != out and (self._is_array or beta != 0):
            self._copy(stream, c, out)


class DenseProduct:
    """A plan of ``SpMv`` or ``SpMm``: descriptors, scratch memory, and how the addend comes into the result.

    Args:
        cusparse: The handle that executes.
        maker: A handle for questions, on the thread of the prepare.
        op: The message.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: Product) -> None:
        self._cusparse = cusparse
        self._descriptors: list[tuple[str, int]] = []
        self._zeros: Memory | None = None
        self._matrix: Matrix | None = None
        vector = isinstance(op, sparse.SpMv)
        b, _, out = _operands(op)
        a, dtype = op.a, op.a.values.dtype
        self._compute = CODES[compute_dtype(dtype).name]
        factors = [factor_of(value, compute_dtype(dtype)) for value in (op.alpha, op.beta)]
        self._factors = pointers(cusparse, factors)  # type: ignore[arg-type] # what it asks of cuBLAS, cuSPARSE has too
        self._addend = Addend(cusparse, op)
        self._empty = out.size == 0
        if self._empty:
            return
        dummy = maker.scratch(1)
        k, algorithm = b.shape[0], 0
        operation = 0 if not op.transpose else 2 if op.conj and dtype.is_complex else 1
        if a.nnz == 0 or k == 0:
            # Any matrix without entries: nothing is multiplied, and the addend is scaled.
            zeros = self._zeros = cusparse.device.allocate(8 * (out.shape[0] + 1))
            k, operation = max(k, 1), 0
            at = (zeros.address, dummy, dummy)
            self._descriptor: Callable[[Sequence[int]], int] = self._always(
                maker.make("create_csr", out.shape[0], k, 0, *at, 3, 3, 0, CODES[dtype.name])
            )
        else:
            if op.deterministic and isinstance(a, sparse.CscRef):
                a, operation = a.T, 0  # the same arrays, in their own order
            if op.deterministic:
                algorithm = REPEATABLE.get((type(op), type(a)), 0)  # those of blocks are always so
            self._matrix = Matrix(maker, a, dummy)
            self._descriptor = self._pointed
        of_b = 0
        if vector:
            right = maker.make("create_dn_vec", k, dummy, CODES[dtype.name])
            result = maker.make("create_dn_vec", out.size, dummy, CODES[dtype.name])
        else:
            right, of_b = dense(maker, b.layout, k, dummy, by_rows(out))
            result, _ = dense(maker, out, out.shape[0], dummy, by_rows(out))
        kind = "dn_vec" if vector else "dn_mat"
        self._descriptors += [(kind, right), (kind, result)]
        self._set_values = getattr(cusparse.library, f"{kind}_set_values")
        self._name = "sp_mv" if vector else "sp_mm"
        self._operations = (operation,) if vector else (operation, of_b)
        self._right, self._result, self._algorithm = right, result, algorithm
        self._b = self._out = dummy
        at_factor = maker.question(isinstance(a, sparse.BlockedEllRef))
        matrix = self._matrix.descriptor if self._matrix is not None else self._descriptor(())
        size = maker.call(
            f"{self._name}_buffer_size", *self._operations, at_factor, matrix, right, at_factor, result, self._compute,
            algorithm,
        )  # fmt: skip
        self._scratch = maker.scratch(max(int(size), 1))

    def __call__(
        self, stream: "CudaStream", a: Sequence[int], b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        """Enqueue it."""
        if self._empty:
            return
        cusparse, zeros = self._cusparse, self._zeros
        cusparse.bind(stream)
        if zeros is not None:
            code = cusparse.driver.memset_8(zeros.address, 0, zeros.nbytes, stream.native)
            cusparse.driver.check(code, "cuMemsetD8Async")
        self._addend.bring(stream.native, c, out, beta)
        at_alpha, at_beta = self._factors(alpha, beta)
        matrix = self._descriptor(a)
        if b != self._b:
            self._set_values(self._right, b)
            self._b = b
        if out != self._out:
            self._set_values(self._result, out)
            self._out = out
        cusparse.call(
            self._name, *self._operations, at_alpha, matrix, self._right, at_beta, self._result, self._compute,
            self._algorithm, self._scratch,
        )  # fmt: skip

    def close(self) -> None:
        """Destroy the descriptors; nothing uses them any more."""
        for kind, descriptor in self._descriptors:
            self._cusparse.make(f"destroy_{kind}", descriptor)
        self._descriptors.clear()
        if self._matrix is not None:
            self._matrix.close()
        if self._zeros is not None:
            self._cusparse.device.release(self._zeros)
            self._zeros = None

    def _always(self, descriptor: int) -> Callable[[Sequence[int]], int]:
        self._descriptors.append(("sp_mat", descriptor))
        return lambda parts: descriptor

    def _pointed(self, parts: Sequence[int]) -> int:
        assert self._matrix is not None
        self._matrix.point(parts)
        return self._matrix.descriptor


class BlockProduct:
    """A plan of a product with blocks that cuSPARSE does not take: rectangular ones, and blocked-ELL with padding.

    cuSPARSE 12.6 multiplies the padding of a blocked-ELL matrix as if it were a block (H200, 2026-11-22).
    """

    def __init__(self, cusparse: Cusparse, op: Product) -> None:
        b, _, out = _operands(op)
        a = op.a
        assert isinstance(a, sparse.BsrRef | sparse.BlockedEllRef)
        self._addend = Addend(cusparse, op)
        args = self._args = ProductArgs()
        args.down, args.across = a.block if isinstance(a, sparse.BsrRef) else (a.block, a.block)
        args.lines = a.shape[0] // args.down
        args.ell = isinstance(a, sparse.BlockedEllRef)
        args.most = a.indices.shape[1] if args.ell else 0
        args.cols = 1 if out.ndim == 1 else out.shape[1]
        args.b_row, args.b_col = (*b.strides, 0)[:2]
        args.out_row, args.out_col = (*out.strides, 0)[:2]
        self._pointers = len(operands_of(a)) - 1
        self._put = [(args.alpha, Factor.setter(op.alpha)), (args.beta, Factor.setter(op.beta))]
        self._empty = out.size == 0
        kernel, items = "multiply", out.size
        if args.cols >= TILE_COLS:
            tiles = -(-args.down // TILE) * -(-args.cols // (WARP * TILE))
            kernel, items = "tiles", args.lines * tiles * WARP
        name, part = f"{kernel}_{a.values.dtype.name}", index_of(a).name
        self._run = launcher(cusparse.device, name, items, args, part=part)

    def __call__(
        self, stream: "CudaStream", a: Sequence[int], b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        """Enqueue it."""
        if self._empty:
            return
        args = self._args
        self._addend.bring(stream.native, c, out, beta)
        args.values, args.indices, args.pointers, args.b, args.out = a[0], a[1], a[self._pointers], b, out
        for (factor, put), value in zip(self._put, (alpha, beta), strict=True):
            put(factor, value)
        self._run(stream.native)


class RowProduct:
    """A plan of ``SpMv`` that adds up rows as they lie, the same number of entries and rows in each block of threads.

    cuSPARSE looks up in each call where its blocks begin, in kernels of their own.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: "sparse.SpMv") -> None:
        _, _, out = _operands(op)
        a = op.a
        assert isinstance(a, sparse.CsrRef | sparse.CscRef)
        self._addend = Addend(cusparse, op)
        args = self._args = RowArgs()
        args.lines, args.entries = out.size, a.nnz
        args.blocks = -(-(out.size + a.nnz) // ITEMS)
        at = maker.scratch(max(32 * args.blocks, 1))
        args.sums, args.rows = at, at + 16 * args.blocks
        self._put = [(args.alpha, Factor.setter(op.alpha)), (args.beta, Factor.setter(op.beta))]
        self._given: tuple[Any, ...] = ()
        name, source = a.values.dtype.name, f"{args.source}-{index_of(a).name}"
        driver, kernels = cusparse.driver, cusparse.device.kernels
        self._run = [
            kernel_launcher(driver, kernels.get(source, f"{kernel}_{name}"), blocks, (THREADS, 1), args)
            for kernel, blocks in (("sum", args.blocks), ("add", -(-args.blocks * WARP // THREADS)))[: args.blocks]
        ]  # nothing goes on from a lone block

    def __call__(
        self, stream: "CudaStream", a: Sequence[int], b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        """Enqueue it."""
        args = self._args
        self._addend.bring(stream.native, c, out, beta)
        args.out = out
        given = (*a, b, alpha, beta)
        if given != self._given or not alpha:  # 0 equals -0
            self._given = given
            args.values, args.indices, args.pointers = a
            args.x = b
            for (factor, put), value in zip(self._put, (alpha, beta), strict=True):
                put(factor, value)
        for run in self._run:
            run(stream.native)
