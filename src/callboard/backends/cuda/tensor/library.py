"""``CudaTensor``: tensors on a GPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.tensor import contraction, elementwise, reductions
from callboard.backends.cuda.tensor.choice import Choice
from callboard.backends.cuda.tensor.elementwise import Run
from callboard.backends.cuda.tensor.engine import Engine, Scratch
from callboard.core.dtype import DTYPES
from callboard.core.library import Entry, Library
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


def ready(plan: Callable[[Engine, Any, Scratch], Run], call: str) -> Callable[["CudaTensor", Any], Run]:
    """Return a function that makes the plan of a message, as the table of plans takes it; errors name ``call``."""

    def make(library: "CudaTensor", op: Any) -> Run:
        scratch = Scratch()
        run = plan(library.engine, op, scratch)
        scratch.base = library.engine.reserve(scratch.size)
        made = library.engine.cublas.guarded(run, call)
        made.close = scratch.close  # type: ignore[attr-defined]
        made.executed_by = scratch.engine  # type: ignore[attr-defined] # for the proofs
        return made

    return make


class CudaTensor(Library):
    """Serves :mod:`callboard.kernel.tensor`: cuTENSOR if it is available and better, cuBLAS, and custom kernels.

    A plan is the finished call, ``plan(stream, *dynamic)``; all that it needs is allocated when it is made. Every
    launch can be captured in a CUDA graph. Plans share their scratch memory, so such a graph must not run beside the
    library's own stream.

    Deterministic by default: no kernel adds atomically, cuBLAS has a workspace of its own, and cuTENSOR's plans do not
    depend on earlier requests. Equal calls on the same GPU with the same versions give equal bits, unless ``autotune``
    chose another way.

    The environment's ``CALLBOARD_TENSOR_ENGINE`` chooses: ``auto`` (see :mod:`callboard.backends.cuda.tensor.choice`),
    ``cutensor`` for all that it takes, ``builtin`` for none.
    """

    name = "tensor"
    max_plans: ClassVar[int | None] = 256
    table: ClassVar = {
        Contract: Entry(ready(contraction.contract, "contract")),
        Einsum: Entry(ready(contraction.einsum, "einsum")),
        Reduction: Entry(ready(reductions.reduction, "reduction")),
        Permutation: Entry(ready(elementwise.permutation, "permutation")),
        ElementwiseBinary: Entry(ready(elementwise.binary, "elementwise_binary")),
        ElementwiseTrinary: Entry(ready(elementwise.trinary, "elementwise_trinary")),
    }

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
