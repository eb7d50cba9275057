"""``CudaTensor``: tensors on a GPU."""

from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.tensor.choice import Choice
from callboard.backends.cuda.tensor.elementwise import Run
from callboard.backends.cuda.tensor.engine import Engine, Scratch
from callboard.core.dtype import DTYPES
from callboard.core.library import AnyOp, Library, modules_of
from callboard.core.op import info_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaTensor"]


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
    modules = modules_of(__name__)

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.choice = Choice()
        self.engine = Engine(device, stream, self.choice)

    @property
    def detail(self) -> str:
        return self.choice.detail

    def prepare(self, op: AnyOp) -> Run:
        scratch = Scratch()
        run = self.makers[type(op)](self.engine, op, scratch)
        scratch.base = self.engine.reserve(scratch.size)
        made = self.engine.cublas.guarded(run, info_of(type(op)).tag.partition(".")[2])
        made.close = scratch.close  # type: ignore[attr-defined]
        made.executed_by = scratch.engine  # type: ignore[attr-defined] # for the proofs
        return made

    def warm_up(self) -> None:
        self.engine.kernel("elementwise", DTYPES["f32"])
        self.engine.kernels.get("memory", "copy_4")

    def close(self) -> None:
        self.engine.close()
        self.choice.close()
