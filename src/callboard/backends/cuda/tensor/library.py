"""``CudaTensor``: tensors on a GPU."""

from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.tensor import contraction, elementwise, reductions
from callboard.backends.cuda.tensor.elementwise import Run
from callboard.backends.cuda.tensor.engine import Engine, Scratch
from callboard.core.dtype import DTYPES
from callboard.core.library import Library, launches, prepares
from callboard.kernel.tensor import (
    Contract,
    Einsum,
    ElementwiseBinary,
    ElementwiseTrinary,
    Permutation,
    Reduction,
)

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaTensor"]


class CudaTensor(Library):
    """Serves :mod:`callboard.kernel.tensor`: a cuBLAS handle of its own, kernels of ours, and scratch memory.

    A plan is the finished call, ``plan(stream, *dynamic)``; all that it needs is allocated when it is made. Every
    launch can be captured in a CUDA graph. Plans share their scratch memory, so such a graph must not run beside the
    library's own stream.

    Deterministic without being asked: no kernel adds atomically, and cuBLAS has a workspace of its own. Equal calls on
    the same GPU with the same versions give equal bits, unless ``autotune`` chose another way.
    """

    name = "tensor"
    max_plans: ClassVar[int | None] = 256

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.engine = Engine(device, stream)

    def warm_up(self) -> None:
        self.engine.kernel("elementwise", DTYPES["f32"])
        self.engine.kernels.get("memory", "copy_4")

    def close(self) -> None:
        self.engine.close()

    @prepares(Contract)
    def plan_contract(self, op: Contract) -> Run:
        scratch = Scratch()
        return self._ready(contraction.contract(self.engine, op, scratch), scratch, "contract")

    @launches(Contract)
    def contract(
        self, stream: CudaStream, plan: Run, a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any
    ) -> None:
        plan(stream, a, b, out, c, alpha, beta)

    @prepares(Einsum)
    def plan_einsum(self, op: Einsum) -> Run:
        scratch = Scratch()
        return self._ready(contraction.einsum(self.engine, op, scratch), scratch, "einsum")

    @launches(Einsum)
    def einsum(self, stream: CudaStream, plan: Run, operands: Any, out: int) -> None:
        plan(stream, operands, out)

    @prepares(Reduction)
    def plan_reduction(self, op: Reduction) -> Run:
        scratch = Scratch()
        return self._ready(reductions.reduction(self.engine, op, scratch), scratch, "reduction")

    @launches(Reduction)
    def reduction(self, stream: CudaStream, plan: Run, a: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        plan(stream, a, out, c, alpha, beta)

    @prepares(Permutation)
    def plan_permutation(self, op: Permutation) -> Run:
        return self._ready(elementwise.permutation(self.engine, op), Scratch(), "permutation")

    @launches(Permutation)
    def permutation(self, stream: CudaStream, plan: Run, a: int, out: int, alpha: Any) -> None:
        plan(stream, a, out, alpha)

    @prepares(ElementwiseBinary)
    def plan_binary(self, op: ElementwiseBinary) -> Run:
        return self._ready(elementwise.binary(self.engine, op), Scratch(), "elementwise_binary")

    @launches(ElementwiseBinary)
    def binary(self, stream: CudaStream, plan: Run, a: int, c: int, out: int, alpha: Any, gamma: Any) -> None:
        plan(stream, a, c, out, alpha, gamma)

    @prepares(ElementwiseTrinary)
    def plan_trinary(self, op: ElementwiseTrinary) -> Run:
        return self._ready(elementwise.trinary(self.engine, op), Scratch(), "elementwise_trinary")

    @launches(ElementwiseTrinary)
    def trinary(
        self, stream: CudaStream, plan: Run, a: int, b: int, c: int, out: int, alpha: Any, beta: Any, gamma: Any
    ) -> None:
        plan(stream, a, b, c, out, alpha, beta, gamma)

    def _ready(self, run: Run, scratch: Scratch, call: str) -> Run:
        scratch.base = self.engine.reserve(scratch.size)
        return self.engine.cublas.guarded(run, call)
