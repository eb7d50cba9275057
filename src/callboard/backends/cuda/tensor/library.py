"""``CudaTensor``: tensors on a GPU."""

from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.tensor import contraction, elementwise, reductions
from callboard.backends.cuda.tensor.choice import Choice
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
    """Serves :mod:`callboard.kernel.tensor`: cuTENSOR where it is there and better, cuBLAS, and kernels of ours.

    A plan is the finished call, ``plan(stream, *dynamic)``; all that it needs is allocated when it is made. Every
    launch can be captured in a CUDA graph. Plans share their scratch memory, so such a graph must not run beside the
    library's own stream.

    Deterministic without being asked: no kernel adds atomically, cuBLAS has a workspace of its own, and cuTENSOR's
    plans do not depend on what was asked before. Equal calls on the same GPU with the same versions give equal bits,
    unless ``autotune`` chose another way.

    The environment's ``CALLBOARD_TENSOR_ENGINE`` chooses: ``auto`` (see :mod:`callboard.backends.cuda.tensor.choice`),
    ``cutensor`` for all that it takes, ``builtin`` for none.
    """

    name = "tensor"
    max_plans: ClassVar[int | None] = 256

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.choice = Choice()
        self.engine = Engine(device, stream, self.choice)

    @property
    def detail(self) -> str:
        return self.choice.detail

    def warm_up(self) -> None:
        self.engine.kernel("elementwise", DTYPES["f32"])
        self.engine.kernels.get("memory", "copy_4")

    def close(self) -> None:
        self.engine.close()
        self.choice.close()

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
        scratch = Scratch()
        return self._ready(elementwise.permutation(self.engine, op, scratch), scratch, "permutation")

    @launches(Permutation)
    def permutation(self, stream: CudaStream, plan: Run, a: int, out: int, alpha: Any) -> None:
        plan(stream, a, out, alpha)

    @prepares(ElementwiseBinary)
    def plan_binary(self, op: ElementwiseBinary) -> Run:
        scratch = Scratch()
        return self._ready(elementwise.binary(self.engine, op, scratch), scratch, "elementwise_binary")

    @launches(ElementwiseBinary)
    def binary(self, stream: CudaStream, plan: Run, a: int, c: int, out: int, alpha: Any, gamma: Any) -> None:
        plan(stream, a, c, out, alpha, gamma)

    @prepares(ElementwiseTrinary)
    def plan_trinary(self, op: ElementwiseTrinary) -> Run:
        scratch = Scratch()
        return self._ready(elementwise.trinary(self.engine, op, scratch), scratch, "elementwise_trinary")

    @launches(ElementwiseTrinary)
    def trinary(
        self, stream: CudaStream, plan: Run, a: int, b: int, c: int, out: int, alpha: Any, beta: Any, gamma: Any
    ) -> None:
        plan(stream, a, b, c, out, alpha, beta, gamma)

    def _ready(self, run: Run, scratch: Scratch, call: str) -> Run:
        scratch.base = self.engine.reserve(scratch.size)
        plan = self.engine.cublas.guarded(run, call)
        plan.close = scratch.close  # type: ignore[attr-defined]
        plan.executed_by = scratch.engine  # type: ignore[attr-defined] # for the proofs
        return plan
