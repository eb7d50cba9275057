"""``CudaBackend``: the kind of device that NVIDIA's GPUs are."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from callboard.backends.cuda.devices import cuda_devices, missing_packages
from callboard.backends.cuda.driver import load_driver
from callboard.backends.cuda.links import device_links
from callboard.core.backend import AccelBackend, DeviceInfo
from callboard.core.errors import BackendUnavailable
from callboard.core.library import Library, LibraryTable
from callboard.core.links import Link

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaBackend"]


LIBRARIES = LibraryTable(
    "callboard.backends.cuda",
    array="CudaArray",
    attention="CudaAttention",
    blas="CudaBlas",
    blas_lt="CudaBlasLt",
    collective="CudaCollective",
    cub="CudaCub",
    cutlass="CudaCutlass",
    dnn="CudaDnn",
    elementwise="CudaElementwise",
    engine="CudaEngine",
    event="CudaEventLibrary",
    fft="CudaFft",
    ipc="CudaIpc",
    managed="CudaManaged",
    memory="CudaMemory",
    module="CudaModule",
    nvrtc="CudaNvrtc",
    rng="CudaRng",
    solver="CudaSolver",
    sparse="CudaSparse",
    sparse_lt="CudaSparseLt",
    tensor="CudaTensor",
)


class CudaBackend(AccelBackend):
    """NVIDIA GPUs and MIG slices, each by its UUID.

    Contexts live in child processes by default: a poisoned one cannot be replaced inside its process.
    """

    name = "cuda"
    isolation = "process"
    completion: ClassVar[str] = "polled"
    shares: ClassVar[bool] = True

    def devices(self) -> list[DeviceInfo]:
        return cuda_devices()

    def environment(self, info: DeviceInfo) -> Mapping[str, str]:
        # A UUID names the same device whatever CUDA_DEVICE_ORDER is. Modules load lazily by default since CUDA 12.2.
        return {"CUDA_VISIBLE_DEVICES": info.uuid}

    def libraries(self) -> Mapping[str, type[Library]]:
        return LIBRARIES

    def links(self, infos: Sequence[DeviceInfo]) -> list[Link]:
        return device_links([info.uuid for info in infos])

    def preload(self) -> None:
        missing = missing_packages()
        if missing:
            raise BackendUnavailable(f'missing Python packages: {", ".join(missing)}; pip install "callboard[cuda13]"')
        load_driver()
        from callboard.backends.cuda.blas.cublas import load_cublas

        load_cublas()
        list(self.libraries().values())

    def open(self, info: DeviceInfo) -> "CudaDevice":
        from callboard.backends.cuda.device import CudaDevice

        return CudaDevice(info)
