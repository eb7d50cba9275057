"""``CudaDnn``: deep learning on a GPU."""

from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.dnn import (
    activations,
    channel_norms,
    conv,
    dropout,
    embedding,
    graphs,
    layer_norm,
    losses,
    lrn,
    pooling,
    rnn,
    rope,
    softmax,
    top_k,
)
from callboard.backends.cuda.dnn.frontend import Frontend
from callboard.backends.cuda.dnn.legacy import Cudnn
from callboard.backends.cuda.repeats import Repeats
from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.workspace import Workspace
from callboard.core.library import Library

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaDnn"]

FAMILIES = (
    activations,
    channel_norms,
    conv,
    dropout,
    embedding,
    graphs,
    layer_norm,
    losses,
    lrn,
    pooling,
    rnn,
    rope,
    softmax,
    top_k,
)
"""Modules with a ``TABLE``: the :class:`~callboard.core.library.Entry` of each of their ops.

The plan of an entry is made by ``plan(library, op)`` on the helper thread. It is called with the stream and the
message's operands, in order; its ``close``, if any, is called when it is evicted.
"""


class CudaDnn(Library):
    """Serves :mod:`callboard.kernel.dnn` with cuDNN 9, and with custom kernels where it has none.

    All plans work in one workspace, so a graph that was recorded from them must not run beside the library's own
    stream.

    Attributes:
        cudnn: The C interface and its handles.
        frontend: Makes plans of operation graphs.
        repeats: Recordings of convolutions that are repeated with the same operands.
        workspace: Workspace of all plans.
    """

    name = "dnn"
    device: "CudaDevice"
    max_plans: ClassVar[int | None] = 1024
    table: ClassVar = {op: entry for family in FAMILIES for op, entry in family.TABLE.items()}
    engines: ClassVar = {
        op: "cuDNN" if family in (conv, graphs, rnn) else "custom kernels" for family in FAMILIES for op in family.TABLE
    }

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cudnn = Cudnn()
        self.workspace = Workspace(device)
        self.frontend = Frontend(device, self.cudnn, self.workspace)
        self.repeats = Repeats(device)

    @property
    def detail(self) -> str:
        return f"cuDNN {self.cudnn.version} and custom kernels"

    def close(self) -> None:
        self.repeats.close()
        self.cudnn.close()
        self.workspace.close()
