"""``CudaAttention``: attention on a GPU."""

import logging
import threading
from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.attention.checking import checking
from callboard.backends.cuda.attention.cudnn import CudnnGraphs
from callboard.backends.cuda.attention.decode import Decoding, decodes
from callboard.backends.cuda.attention.own import OwnBackward, OwnForward
from callboard.backends.cuda.attention.rules import AnyCall, refuses, refuses_fp8, wanted, why_own
from callboard.backends.cuda.attention.sdpa import CudnnAttention
from callboard.backends.cuda.attention.sdpa_fp8 import CudnnFp8
from callboard.backends.cuda.stream import CudaStream
from callboard.backends.cuda.workspace import Workspace
from callboard.core.errors import BackendUnavailable, LibraryError, UnsupportedOp
from callboard.core.library import Library, modules_of, ops_of, plans
from callboard.kernel.attention import (
    Backward,
    BackwardBias,
    BackwardFp8,
    Forward,
    ForwardFp8,
    PagedForward,
)

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaAttention"]

_log = logging.getLogger("callboard.cuda")


class CudaAttention(Library):
    """Serves :mod:`callboard.kernel.attention` with cuDNN, and where its table passes cuDNN over with our own kernels.

    Without cuDNN's frontend our own kernels serve everything but fp8.
    """

    name = "attention"
    max_plans = 512
    modules = modules_of(__name__)
    engines: ClassVar = {
        **dict.fromkeys((BackwardBias, *ops_of(*modules)), "custom kernels"),
        **dict.fromkeys((Forward, Backward, PagedForward), "cuDNN or custom kernels"),
        **dict.fromkeys((ForwardFp8, BackwardFp8), "cuDNN"),
    }

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.device: CudaDevice = device
        self.workspace = Workspace(device)
        self._lock = threading.Lock()
        self._graphs: CudnnGraphs | None = None
        self._missing = ""

    @property
    def detail(self) -> str:
        graphs = self.graphs()
        return f"callboard's kernels; {self._missing}" if graphs is None else f"cuDNN {graphs.version}"

    def graphs(self) -> CudnnGraphs | None:
        """cuDNN; None if it is unavailable. Loaded on first use."""
        with self._lock:
            if self._graphs is None and not self._missing:
                try:
                    info = self.device.info
                    self._graphs = CudnnGraphs(self.workspace, f"{info.name} {info.compute_capability}")
                except BackendUnavailable as e:
                    self._missing = str(e)
                    _log.info("attention: %s; its own kernels serve all calls", e)
            return self._graphs

    @plans(Backward, BackwardBias, Forward, PagedForward, refuses=refuses)
    def planned(self, op: AnyCall) -> Any:
        """The plan of a call, by the engine that the table names."""
        problem = op.problem()
        w = wanted(op, problem)
        why = why_own(w)
        if why is None and decodes(w):
            return Decoding(self, w)
        if why is None and (graphs := self.graphs()) is not None:
            try:
                return CudnnAttention(self, graphs, w)
            except (UnsupportedOp, LibraryError) as e:  # the frontend takes it, and none of the engines
                _log.info("attention: its own kernels serve %r: %s", problem, e)
        serving = OwnBackward if isinstance(op, Backward | BackwardBias) else OwnForward
        made: Any = serving
        return made(self, op, checking(self, op, problem, tables=False))

    @plans(BackwardFp8, ForwardFp8, refuses=refuses_fp8)
    def narrow(self, op: ForwardFp8 | BackwardFp8) -> CudnnFp8:
        """The plan of a call in fp8.

        Raises:
            UnsupportedOp: cuDNN is not there, or has no engine for it.
        """
        graphs = self.graphs()
        if graphs is None:
            raise UnsupportedOp(f"cuda, {type(op).__struct_config__.tag}: {self._missing}")
        return CudnnFp8(self, graphs, wanted(op, op.problem()))

    def close(self) -> None:
        if self._graphs is not None:
            self._graphs.close()
        self.workspace.close()
