"""``CudaSparseLt``: structured matrices on a GPU."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse_lt.cusparselt import CusparseLt
from callboard.backends.cuda.sparse_lt.products import Multiplying
from callboard.backends.cuda.sparse_lt.pruning import Checking, Compressing, Decompressing, Pruning
from callboard.backends.cuda.sparse_lt.rules import refuses_compressed, refuses_matrix, refuses_product
from callboard.backends.cuda.sparse_lt.scaling import Scaling
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Library, launches, prepares
from callboard.core.operand import Operand
from callboard.kernel.sparse_lt import Check, Compress, Decompress, Linear, Matmul, Prune

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaSparseLt"]


class CudaSparseLt(Library):
    """Serves :mod:`callboard.kernel.sparse_lt` with cuSPARSELt; pruning, checks and decompression are custom kernels.

    All launches can be captured in a CUDA graph.
    """

    name = "sparse_lt"
    max_plans = 256

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.lt = CusparseLt(device)

    def close(self) -> None:
        self.lt.close()

    @prepares(Prune)
    def plan_prune(self, op: Prune) -> Pruning:
        return Pruning(self.lt, op)

    @launches(Prune)
    def prune(self, stream: CudaStream, plan: Pruning, x: int, out: int) -> None:
        plan(stream, x, out)

    @prepares(Check)
    def plan_check(self, op: Check) -> Checking:
        return Checking(self.lt, op)

    @launches(Check)
    def check(self, stream: CudaStream, plan: Checking, x: int, out: int) -> None:
        plan(stream, x, out)

    @prepares(Compress)
    def plan_compress(self, op: Compress) -> Compressing:
        return Compressing(self.lt, op)

    @launches(Compress, refuses=refuses_matrix)
    def compress(self, stream: CudaStream, plan: Compressing, x: int, out: tuple[int]) -> CudaStatus | None:
        return plan(stream, x, out[0])

    @prepares(Decompress)
    def plan_decompress(self, op: Decompress) -> Decompressing:
        return Decompressing(self.lt, op)

    @launches(Decompress, refuses=refuses_compressed)
    def decompress(self, stream: CudaStream, plan: Decompressing, a: tuple[int], out: int) -> None:
        plan(stream, a[0], out)

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
