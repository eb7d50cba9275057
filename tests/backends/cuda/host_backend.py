"""The CUDA backend over a stand-in for the driver."""

from host_driver import UUID, HostDriver, HostKernels

from callboard.backends.cuda.cuda_backend import CudaBackend
from callboard.backends.cuda.device import CudaDevice
from callboard.core.backend import DeviceInfo

INFO = DeviceInfo("cuda", 0, f"GPU-{UUID.hex()}", "host memory", 1 << 34, (0, 0))


class HostCudaBackend(CudaBackend):
    """The real backend over a :class:`HostDriver`."""

    def __init__(self, driver: HostDriver) -> None:
        self.driver = driver

    def devices(self) -> list[DeviceInfo]:
        return [INFO]

    def open(self, info: DeviceInfo) -> CudaDevice:
        device = CudaDevice(info, self.driver)  # type: ignore[arg-type]
        device.kernels = HostKernels(self.driver)  # type: ignore[assignment]
        return device
