"""``CudaSparse``: sparse matrices on a GPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.sparse.conversions import Checking, Converter, FromDense, to_dense, too_long
from callboard.backends.cuda.sparse.cusparse import Cusparse
from callboard.backends.cuda.sparse.products import DenseProduct, SparseProduct
from callboard.backends.cuda.sparse.triangular import Sampled, Solve, no_terms
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Extents, Library, launches, measures, prepares
from callboard.kernel import sparse

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSparse"]

Run = Callable[..., None]


def _sized(op: sparse.SpGemm) -> str | None:
    """CuSPARSE asks for buffers between the steps of a sparse product, so the host has to wait for it."""
    if op.out is not None:
        return "cuSPARSE sizes a sparse product on the host; leave out and count out, and await the result"
    return None


class CudaSparse(Library):
    """Serves :mod:`callboard.kernel.sparse` with cuSPARSE and kernels of ours.

    Three handles: one that executes, on the admitting thread; one that prepares ask, on the helper's; and one for
    sparse products, whose measure runs on the helper's thread and whose launch follows on the admitting one.
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
    def plan_dense_product(self, op: "sparse.SpMv | sparse.SpMm") -> DenseProduct:
        return DenseProduct(self.cusparse, self.maker, op)

    @launches(sparse.SpMv)
    def sp_mv(
        self,
        stream: CudaStream,
        plan: DenseProduct,
        a: list[int],
        x: int,
        out: int,
        y: int | None,
        alpha: Any,
        beta: Any,
    ) -> None:
        plan(a, x, out, y, alpha, beta)

    @launches(sparse.SpMm)
    def sp_mm(
        self,
        stream: CudaStream,
        plan: DenseProduct,
        a: list[int],
        b: int,
        out: int,
        c: int | None,
        alpha: Any,
        beta: Any,
    ) -> None:
        plan(a, b, out, c, alpha, beta)

    @prepares(sparse.SpGemm)
    def plan_sp_gemm(self, op: sparse.SpGemm) -> SparseProduct:
        return SparseProduct(self.sizer, op)

    @measures(sparse.SpGemm)
    def measure_sp_gemm(
        self, plan: SparseProduct, a: list[int], b: list[int], out: None, count: None, alpha: Any
    ) -> Extents:
        return plan.measure(a, b, alpha)

    @launches(sparse.SpGemm, refuses=_sized, captures=False)
    def sp_gemm(
        self,
        stream: CudaStream,
        plan: SparseProduct,
        a: list[int],
        b: list[int],
        out: list[int],
        count: None,
        alpha: Any,
    ) -> None:
        plan.launch(out, alpha)

    @prepares(sparse.Sddmm)
    def plan_sddmm(self, op: sparse.Sddmm) -> Sampled:
        return Sampled(self.cusparse, self.maker, op)

    @launches(sparse.Sddmm, refuses=no_terms)
    def sddmm(
        self, stream: CudaStream, plan: Sampled, a: int, b: int, c: list[int], out: int, alpha: Any, beta: Any
    ) -> None:
        plan(a, b, c, out, alpha, beta)

    # -- solves --------------------------------------------------------------------------------------------------------

    @prepares(sparse.SpSv, sparse.SpSm)
    def plan_solve(self, op: "sparse.SpSv | sparse.SpSm") -> Solve:
        return Solve(self.cusparse, self.maker, op)

    @launches(sparse.SpSv, captures=False)
    def sp_sv(
        self, stream: CudaStream, plan: Solve, a: list[int], x: int, out: int, alpha: Any
    ) -> Callable[[], None] | None:
        return plan(a, x, out, alpha)

    @launches(sparse.SpSm, captures=False)
    def sp_sm(
        self, stream: CudaStream, plan: Solve, a: list[int], b: int, out: int, alpha: Any
    ) -> Callable[[], None] | None:
        return plan(a, b, out, alpha)

    # -- conversions ---------------------------------------------------------------------------------------------------

    @prepares(sparse.ToDense)
    def plan_to_dense(self, op: sparse.ToDense) -> Run:
        return to_dense(self.cusparse, op)

    @launches(sparse.ToDense)
    def to_dense(self, stream: CudaStream, plan: Run, a: list[int], out: int) -> None:
        plan(a, out)

    @prepares(sparse.FromDense)
    def plan_from_dense(self, op: sparse.FromDense) -> FromDense:
        return FromDense(self.cusparse, op)

    @measures(sparse.FromDense)
    def measure_from_dense(self, plan: FromDense, dense: int, out: None, count: None) -> Extents:
        return plan.measure(dense)

    @launches(sparse.FromDense)
    def from_dense(
        self, stream: CudaStream, plan: FromDense, dense: int, out: list[int], count: int | None
    ) -> Callable[[], None] | None:
        return plan.launch(dense, out, count)

    @prepares(sparse.Convert)
    def plan_convert(self, op: sparse.Convert) -> Converter:
        return Converter(self.cusparse, self.maker, op)

    @launches(sparse.Convert, refuses=too_long, captures=False)  # cuSPARSE's csr2csc waits for the device
    def convert(self, stream: CudaStream, plan: Converter, a: list[int], out: list[int]) -> None:
        plan(a, out)

    @prepares(sparse.Check)
    def plan_check(self, op: sparse.Check) -> Checking:
        return Checking(self.cusparse, op)

    @launches(sparse.Check)
    def check(self, stream: CudaStream, plan: Checking, a: list[int]) -> Callable[[], None]:
        return plan(a)
