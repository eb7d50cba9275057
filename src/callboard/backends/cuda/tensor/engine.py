"""Resources shared by all plans of a ``CudaTensor``: handles, kernels, and scratch memory."""

from typing import TYPE_CHECKING

from callboard.backends.cuda.blas.cublas import Cublas
from callboard.backends.cuda.tensor.choice import Choice
from callboard.backends.cuda.tensor.cutensor import Planned
from callboard.core.dtype import DType

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["ALIGNMENT", "Engine", "Scratch"]

ALIGNMENT = 256
"""Alignment of every offset in scratch memory: that of cudaMalloc, which the fastest products need."""


class Engine:
    """The handles and the memory of one library.

    Args:
        device: The device; its context is current.
        stream: The stream it enqueues on.
        choice: Choice of the engine for each op; the caller closes it.

    Attributes:
        cublas: A handle of its own, with its workspace.
        choice: Choice of the engine for each op.
        device, driver, kernels: Device, driver and kernels to compute with.
    """

    def __init__(self, device: "CudaDevice", stream: "CudaStream", choice: Choice) -> None:
        self.cublas = Cublas(device, stream)
        self.choice = choice
        self.driver = device.driver
        self.kernels = device.kernels
        self.device = device
        self._memory: list[Memory] = []
        self._bench: Engine | None = None

    def kernel(self, name: str, dtype: DType) -> int:
        """A kernel for this dtype of ``data/tensor_elements.cu`` or ``tensor_reductions.cu``; may be compiled here."""
        source = "tensor_elements" if name == "elementwise" else "tensor_reductions"
        return self.kernels.get(f"{source}-{dtype.name}", f"{name}_{dtype.name}")

    def reserve(self, nbytes: int) -> int:
        """Scratch memory of at least this size. The next plan is given the same: plans run one after the other.

        Memory returned earlier stays valid, since its launches may be part of a graph; each block is at least half as
        large again as the one before.
        """
        if nbytes == 0:
            return 0
        last = self._memory[-1] if self._memory else None
        if last is None or last.nbytes < nbytes:
            last = self.device.allocate(max(nbytes, 0 if last is None else last.nbytes * 3 // 2))
            self._memory.append(last)
        return last.address

    def bench(self) -> "Engine":
        """An engine to try things on, with a stream of its own. On the thread that prepares, and there only."""
        if self._bench is None:
            self._bench = Engine(self.device, self.device.stream(), self.choice)
        return self._bench

    def close(self) -> None:
        if self._bench is not None:
            self._bench.close()
        self.cublas.close()
        for memory in self._memory:
            self.device.release(memory)
        self._memory.clear()


class Scratch:
    """Resources of one plan: cuTENSOR plans, and offsets in the scratch memory.

    Parts that are not live at the same time may share an offset.

    Attributes:
        base: Address of the memory; known when all places have been given out.
        size: Bytes that the plan needs.
    """

    def __init__(self) -> None:
        self.base = 0
        self.size = 0
        self._taken: dict[int, int] = {}
        self._planned: list[Planned] = []

    @property
    def engine(self) -> str:
        """The engine that this plan needs in addition to custom kernels."""
        return "cutensor" if self._planned else "builtin"

    def keep(self, planned: Planned, workspace: int) -> int:
        """Have a plan of cuTENSOR destroyed with this one; gives the place of its workspace."""
        self._planned.append(planned)
        place = self.take(workspace)
        self.give(place)  # later work on the stream may reuse it
        return place

    def close(self) -> None:
        """Destroy the plans of cuTENSOR; nothing is being launched with them."""
        while self._planned:
            self._planned.pop().close()

    def take(self, nbytes: int) -> int:
        """The lowest place that is free: an offset from :attr:`base`."""
        need = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        place = 0
        for start, size in sorted(self._taken.items()):
            if start - place >= need:
                break
            place = start + size
        self._taken[place] = need
        self.size = max(self.size, place + need)
        return place

    def give(self, place: int) -> None:
        """It may be reused by later work."""
        del self._taken[place]
