"""``CudaDnn``: deep learning on a GPU."""

from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.dnn import conv, graphs
from callboard.backends.cuda.dnn.frontend import Frontend
from callboard.backends.cuda.dnn.legacy import Cudnn
from callboard.backends.cuda.dnn.rnn import plans as rnn
from callboard.backends.cuda.repeats import Repeats
from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.workspace import Workspace
from callboard.core.library import Library, modules_of, ops_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaDnn"]

VENDOR = (conv, graphs, rnn)
"""Modules whose plans are cuDNN's; the others have custom kernels."""


class CudaDnn(Library):
    """Serves :mod:`callboard.kernel.dnn` with cuDNN 9, and with custom kernels where it has none.

    All plans work in one workspace, so a graph that was recorded from them must not run beside the library's own
    stream.

    Attributes:
        cudnn: The C interface and its handles.
        frontend: Makes plans of operation graphs.
        repeats: Recordings of convolutions that are repeated with the same operands.
        workspace: Workspace of all plans.
        results: Workspace for results that are then scaled and added.
    """

    name = "dnn"
    device: "CudaDevice"
    max_plans: ClassVar[int | None] = 1024
    modules = modules_of(__name__)
    engines: ClassVar = {**dict.fromkeys(ops_of(*modules), "custom kernels"), **dict.fromkeys(ops_of(*VENDOR), "cuDNN")}

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.cudnn = Cudnn()
        self.workspace, self.results = Workspace(device), Workspace(device)
        self.frontend = Frontend(device, self.cudnn, self.workspace)
        self.repeats = Repeats(device)

    @property
    def detail(self) -> str:
        return f"cuDNN {self.cudnn.version} and custom kernels"

    def close(self) -> None:
        self.repeats.close()
        self.cudnn.close()
        self.workspace.close()
        self.results.close()
