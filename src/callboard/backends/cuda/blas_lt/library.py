"""``CudaBlasLt``: fused matrix products on a GPU."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas_lt.cublaslt import Candidate, CublasLt
from callboard.backends.cuda.blas_lt.fused import Fused, fused
from callboard.backends.cuda.blas_lt.mapping import Mapping, mapping_of, pointer_mode
from callboard.backends.cuda.blas_lt.operation import Operation
from callboard.backends.cuda.blas_lt.rules import refuses
from callboard.backends.cuda.blas_lt.tuning import fastest
from callboard.backends.cuda.blas_lt.unfused import Unfused, unfused
from callboard.backends.cuda.repeats import Repeats
from callboard.backends.cuda.stream import CudaStream
from callboard.core.errors import UnsupportedOp
from callboard.core.library import Library, plans
from callboard.core.op import Outputs, info_of, outputs_of
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad
from callboard.kernel.blas_lt.product import WORKSPACE, Product

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaBlasLt"]

Plan = Fused | Unfused


class CudaBlasLt(Library):
    """Serves :mod:`callboard.kernel.blas_lt`. Plans are cuBLASLt's descriptors with the algorithm that was chosen.

    All launches can be captured in a CUDA graph; a graph keeps the workspace that it was captured with.
    """

    name = "blas_lt"
    max_plans = 256

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.lt = CublasLt(device, stream)
        self.repeats = Repeats(device)
        self._timing: CudaStream | None = None

    def warm_up(self) -> None:
        """Reserve the workspace."""
        self.lt.reserve(WORKSPACE)

    def close(self) -> None:
        self.repeats.close()
        self.lt.close()

    @plans(Matmul, MatmulAux, MatmulBgrad, refuses=refuses)
    def plan(self, op: Product[Any]) -> "Plan | Again":
        """A search in cuBLASLt, which may load its kernels, and timings: on the helper thread."""
        plan = self._plan(op)
        # One call of cuBLASLt, whose workspace stays: no further kernel, no number written to a slot.
        if isinstance(plan, Fused) and plan.otherwise is None and not pointer_mode(op):
            return Again(self.repeats, plan)
        return plan

    def _plan(self, op: Product[Any]) -> Plan:
        made = outputs_of(op)
        mapping = mapping_of(op, made)
        exact = not (op.a.dtype.name == "f64" and op.traits.activation == "gelu")
        whole = None
        if mapping.k and mapping.out.size and exact:  # cuBLASLt's GELU of f64 is right to about 10 digits only
            whole = fused(self.lt, op, mapping, made, self._choose)
        if whole is not None and not whole.needs_alignment:
            return whole
        steps = unfused(self.lt, op, mapping, made, self._choose)
        if whole is not None:
            whole.otherwise = steps
            return whole
        if steps is None:
            raise UnsupportedOp(f"cuda, {info_of(type(op)).tag}: {_why(op, mapping)}")
        return steps

    def _choose(
        self, op: Product[Any], mapping: Mapping, made: Outputs, operation: Operation, candidates: list[Candidate]
    ) -> Candidate:
        if self._timing is None:
            self._timing = self.lt.device.stream()
        return fastest(self.lt, self._timing, op, mapping, made, operation, candidates)

    def launch(self, stream: CudaStream, plan: "Plan | Again", *operands: Any) -> None:
        self.lt.stream = stream  # where numbers are written to its slots
        plan(stream, *operands)


class Again:
    """A plan whose launches with the same arguments are enqueued as a graph.

    Args:
        repeats: Repeats of the library.
        plan: Plan that enqueues the product.
    """

    def __init__(self, repeats: Repeats, plan: Fused) -> None:
        self._plan = plan
        self._launch: Any = repeats.of(plan)

    def __call__(self, stream: CudaStream, *operands: Any) -> None:
        self._launch(stream, *operands)

    def close(self) -> None:
        """Release the graphs and the plan; all its work is done."""
        self._launch.close()
        self._plan.close()


def _why(op: Product[Any], mapping: Mapping) -> str:
    return (
        f"cuBLASLt has no kernel for {op.a.dtype} and {op.b.dtype} to {mapping.out.dtype} with epilogue "
        f"{op.epilogue!r} and these extents and scales; take 'none' and a separate step"
    )
