"""``CudaSparse``: sparse matrices on a GPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.sparse import blocks, gemm, ordering, products, triangular
from callboard.backends.cuda.sparse.checking import Checking
from callboard.backends.cuda.sparse.conversions import Converter, FromDense, to_dense, too_long
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.lists import FromBlocks
from callboard.backends.cuda.sparse.sampled import sampled
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Extents, Library, launches, measures, prepares
from callboard.kernel import sparse

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSparse"]

Run = Callable[..., None]


class CudaSparse(Library):
    """Serves :mod:`callboard.kernel.sparse` with cuSPARSE and kernels of ours.

    Three handles: one that executes, on the admitting thread; one that prepares ask, on the helper's; and one for
    ops that measure with it on the helper's thread and launch on the admitting one: sparse products, sorting, blocks.

    Not recorded in graphs (tried with CUDA 13.0 on an H200): solves, whose analysis ends the process then (SIGFPE);
    exchanges of rows and columns by csr2csc, which meet an illegal address; sparse products and sorting, whose measure
    must run each time.
    """

    name = "sparse"
    max_plans = 1024

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

    # -- products ------------------------------------------------------------------------------------------------------

    @prepares(sparse.SpMv, sparse.SpMm)
    def plan_dense_product(self, op: "sparse.SpMv | sparse.SpMm") -> Run:
        return products.dense_product(self.cusparse, self.maker, op)

    @launches(sparse.SpMv, refuses=products.why_not)
    def sp_mv(
        self, stream: CudaStream, plan: Run, a: list[int], x: int, out: int, y: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(a, x, out, y, alpha, beta)

    @launches(sparse.SpMm, refuses=products.why_not)
    def sp_mm(
        self, stream: CudaStream, plan: Run, a: list[int], b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(a, b, out, c, alpha, beta)

    @prepares(sparse.SpGemm)
    def plan_sp_gemm(self, op: sparse.SpGemm) -> gemm.SparseProduct:
        return gemm.SparseProduct(self.sizer, op)

    @measures(sparse.SpGemm, always=True)
    def measure_sp_gemm(
        self, plan: gemm.SparseProduct, a: list[int], b: list[int], out: Any, count: int | None, alpha: Any
    ) -> Extents:
        return plan.measure(a, b, alpha)

    @launches(sparse.SpGemm, refuses=gemm.why_not, captures=False)
    def sp_gemm(
        self,
        stream: CudaStream,
        plan: gemm.SparseProduct,
        a: list[int],
        b: list[int],
        out: list[int],
        count: int | None,
        alpha: Any,
    ) -> None:
        plan.launch(out, count, alpha)

    @prepares(sparse.Sddmm)
    def plan_sddmm(self, op: sparse.Sddmm) -> Run:
        return sampled(self.cusparse, self.maker, op)

    @launches(sparse.Sddmm)
    def sddmm(
        self, stream: CudaStream, plan: Run, a: int, b: int, c: list[int], out: int, alpha: Any, beta: Any
    ) -> None:
        plan(a, b, c, out, alpha, beta)

    # -- solves --------------------------------------------------------------------------------------------------------

    @prepares(sparse.SpSv, sparse.SpSm)
    def plan_solve(self, op: "sparse.SpSv | sparse.SpSm") -> triangular.Solve:
        return triangular.Solve(self.cusparse, self.maker, op)

    @launches(sparse.SpSv, refuses=triangular.why_not, captures=False)
    def sp_sv(
        self, stream: CudaStream, plan: triangular.Solve, a: list[int], x: int, out: int, alpha: Any
    ) -> Callable[[], None] | None:
        return plan(a, x, out, alpha)

    @launches(sparse.SpSm, refuses=triangular.why_not, captures=False)
    def sp_sm(
        self, stream: CudaStream, plan: triangular.Solve, a: list[int], b: int, out: int, alpha: Any
    ) -> Callable[[], None] | None:
        return plan(a, b, out, alpha)

    # -- conversions ---------------------------------------------------------------------------------------------------

    @prepares(sparse.ToDense)
    def plan_to_dense(self, op: sparse.ToDense) -> Run:
        of_blocks = isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef)
        return blocks.to_dense(self.cusparse, op) if of_blocks else to_dense(self.cusparse, op)

    @launches(sparse.ToDense)
    def to_dense(self, stream: CudaStream, plan: Run, a: list[int], out: int) -> None:
        plan(a, out)

    @prepares(sparse.FromDense)
    def plan_from_dense(self, op: sparse.FromDense) -> "FromDense | blocks.ToBlocks":
        if op.block is None:
            return FromDense(self.cusparse, op)
        return blocks.ToBlocks(self.cusparse, self.maker, op)

    @measures(sparse.FromDense)
    def measure_from_dense(self, plan: "FromDense | blocks.ToBlocks", dense: int, out: None, count: None) -> Extents:
        return plan.measure(dense)

    @launches(sparse.FromDense)
    def from_dense(
        self, stream: CudaStream, plan: "FromDense | blocks.ToBlocks", dense: int, out: list[int], count: int | None
    ) -> Callable[[], None] | None:
        return plan.launch(dense, out, count)

    @prepares(sparse.Convert)
    def plan_convert(self, op: sparse.Convert) -> "Converter | blocks.ToBlocks | FromBlocks":
        if isinstance(op.a, sparse.BsrRef | sparse.BlockedEllRef):
            return FromBlocks(self.cusparse, self.maker, op)
        if op.block is not None:
            return blocks.ToBlocks(self.sizer, self.maker, op)
        return Converter(self.cusparse, self.maker, op)

    @measures(sparse.Convert)
    def measure_convert(self, plan: "blocks.ToBlocks | FromBlocks", a: list[int], out: None, count: None) -> Extents:
        return plan.measure(a)

    @launches(sparse.Convert, refuses=too_long)
    def convert(
        self,
        stream: CudaStream,
        plan: "Converter | blocks.ToBlocks | FromBlocks",
        a: list[int],
        out: list[int],
        count: Any,
    ) -> Callable[[], None] | None:
        return plan.launch(a, out, count)

    @prepares(sparse.Transpose)
    def plan_transpose(self, op: sparse.Transpose) -> FromBlocks:
        return FromBlocks(self.cusparse, self.maker, op)

    @launches(sparse.Transpose, refuses=too_long, captures=False)
    def transpose(self, stream: CudaStream, plan: FromBlocks, a: list[int], out: list[int]) -> None:
        plan.launch(a, out, None)

    @prepares(sparse.Sort)
    def plan_sort(self, op: sparse.Sort) -> ordering.Sorted:
        return ordering.Sorted(self.sizer, self.maker, op)

    @measures(sparse.Sort, always=True)
    def measure_sort(self, plan: ordering.Sorted, a: list[int], out: Any, count: int | None) -> Extents:
        return plan.measure(a)

    @launches(sparse.Sort, refuses=ordering.too_long, captures=False)
    def sort(self, stream: CudaStream, plan: ordering.Sorted, a: list[int], out: list[int], count: int | None) -> None:
        plan.launch(a, out, count)

    @prepares(sparse.Check)
    def plan_check(self, op: sparse.Check) -> Checking:
        return Checking(self.cusparse, op)

    @launches(sparse.Check)
    def check(self, stream: CudaStream, plan: Checking, a: list[int]) -> Callable[[], None]:
        return plan(a)
