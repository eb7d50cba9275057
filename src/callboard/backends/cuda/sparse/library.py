"""``CudaSparse``: sparse matrices on a GPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.sparse import blocks, gemm, ordering, products, triangular
from callboard.backends.cuda.sparse.checking import Checking
from callboard.backends.cuda.sparse.conversions import Converter, FromDense, to_dense, too_long
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.lists import FromBlocks
from callboard.backends.cuda.sparse.sampled import sampled
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Entry, Library
from callboard.kernel import sparse

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSparse"]


def plan_to_dense(library: "CudaSparse", op: sparse.ToDense) -> "Callable[..., None]":
    of_blocks = isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef)
    return (blocks.to_dense if of_blocks else to_dense)(library.cusparse, op)


def plan_from_dense(library: "CudaSparse", op: sparse.FromDense) -> "FromDense | blocks.ToBlocks":
    if op.block is None:
        return FromDense(library.cusparse, op)
    return blocks.ToBlocks(library.cusparse, library.maker, op)


def plan_convert(library: "CudaSparse", op: sparse.Convert) -> "Converter | blocks.ToBlocks | FromBlocks":
    if isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef):
        return FromBlocks(library.cusparse, library.maker, op)
    if op.block is not None:
        return blocks.ToBlocks(library.sizer, library.maker, op)
    return Converter(library.cusparse, library.maker, op)


PRODUCT = Entry(
    lambda library, op: products.dense_product(library.cusparse, library.maker, op), refuses=products.why_not
)
SOLVE = Entry(
    lambda library, op: triangular.Solve(library.cusparse, library.maker, op),
    refuses=triangular.why_not,
    captures=False,
)


class CudaSparse(Library):
    """Serves :mod:`callboard.kernel.sparse` with cuSPARSE and custom kernels.

    Three handles: one that executes, on the admitting thread; one for prepares, on the helper thread; and one
    for ops that use it in size queries on the helper thread and in launches on the admitting one: sparse products,
    sorting, blocks.

    Not recorded in graphs (tried with CUDA 13.0 on an H200): solves, whose analysis ends the process then (SIGFPE);
    exchanges of rows and columns by csr2csc, which meet an illegal address; sparse products and sorting, whose size
    query must run each time.
    """

    name = "sparse"
    max_plans = 1024
    table: ClassVar = {
        sparse.SpMv: PRODUCT,
        sparse.SpMm: PRODUCT,
        sparse.SpGemm: Entry(
            lambda library, op: gemm.SparseProduct(library.sizer, op),
            sizes=True,
            always=True,
            refuses=gemm.why_not,
            captures=False,
        ),
        sparse.Sddmm: Entry(lambda library, op: sampled(library.cusparse, library.maker, op)),
        sparse.SpSv: SOLVE,
        sparse.SpSm: SOLVE,
        sparse.ToDense: Entry(plan_to_dense),
        sparse.FromDense: Entry(plan_from_dense, sizes=True),
        sparse.Convert: Entry(plan_convert, sizes=True, refuses=too_long),
        sparse.Transpose: Entry(
            lambda library, op: FromBlocks(library.cusparse, library.maker, op), refuses=too_long, captures=False
        ),
        sparse.Sort: Entry(
            lambda library, op: ordering.Sorted(library.sizer, library.maker, op),
            sizes=True,
            always=True,
            refuses=ordering.too_long,
            captures=False,
        ),
        sparse.Check: Entry(lambda library, op: Checking(library.cusparse, op)),
    }

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cusparse = Cusparse(device, stream)
        self.maker = Cusparse(device, stream)
        self.sizer = Cusparse(device, stream)

    def warm_up(self) -> None:
        """Load our kernels."""
        self.cusparse.device.kernels.get("sparse", "clear_4")

    def close(self) -> None:
        for handle in (self.cusparse, self.maker, self.sizer):
            handle.close()
