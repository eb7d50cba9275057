"""``CudaSparseLt``: structured matrices on a GPU."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.sparse_lt.cusparselt import CusparseLt
from callboard.backends.cuda.sparse_lt.products import Multiplying
from callboard.backends.cuda.sparse_lt.rules import refuses_product
from callboard.backends.cuda.sparse_lt.scaling import Scaling
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import AnyOp, Library, launches, modules_of, prepares
from callboard.core.operand import Operand
from callboard.kernel.sparse_lt import Linear, Matmul

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSparseLt"]


class CudaSparseLt(Library):
    """Serves :mod:`callboard.kernel.sparse_lt` with cuSPARSELt; pruning, checks and decompression are custom kernels.

    All launches can be captured in a CUDA graph.
    """

    name = "sparse_lt"
    max_plans = 256
    modules = modules_of(__name__)

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.lt = CusparseLt(device)

    def close(self) -> None:
        self.lt.close()

    def prepare(self, op: AnyOp) -> Any:
        return self.makers[type(op)](self.lt, op)

    @prepares(Matmul, Linear)
    def plan_product(self, op: "Matmul | Linear") -> Multiplying | Scaling:
        """Make descriptors, and time algorithms if requested: on the helper thread."""
        scaled = any(isinstance(factor, Operand) for factor in (op.alpha, op.beta))
        return Scaling(self.lt, op) if scaled else Multiplying(self.lt, op)

    @launches(Matmul, refuses=refuses_product)
    def matmul(
        self,
        stream: CudaStream,
        plan: Multiplying | Scaling,
        out: int,
        c: int | None,
        bias: int | None,
        alpha: Any,
        beta: Any,
        a: tuple[int],
        b: int,
    ) -> None:
        plan(stream, a[0], b, out, c, bias, alpha, beta)

    @launches(Linear, refuses=refuses_product)
    def linear(
        self,
        stream: CudaStream,
        plan: Multiplying | Scaling,
        out: int,
        c: int | None,
        bias: int | None,
        alpha: Any,
        beta: Any,
        x: int,
        w: tuple[int],
    ) -> None:
        plan(stream, w[0], x, out, c, bias, alpha, beta)
