"""The CUDA backend over a stand-in for the driver, and a session on it."""

from itertools import cycle
from typing import Any

from host_driver import UUID, HostDriver, HostKernels

from callboard.backends.cuda.cuda_backend import CudaBackend
from callboard.backends.cuda.device import CudaDevice
from callboard.core.backend import AccelStream, DeviceInfo, Status
from callboard.core.op import Op, info_of, outputs_of
from callboard.testing.session import LibrarySession, SessionArray, SignaturePlan

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


class HostSession(LibrarySession):
    """A session whose launches are all given other streams than the library's own, two by turns.

    What a launch enqueues anywhere else fails it: on the stream that the library was made with, or the one of the
    moment at which its plan was made.

    Attributes:
        streams: Both.
        driver: As given.
    """

    def __init__(self, driver: HostDriver) -> None:
        super().__init__(HostCudaBackend(driver))
        self.driver = driver
        self.streams = self.device.stream(), self.device.stream()
        self._next = cycle(self.streams)

    def launch_only(self, op: Op[Any, Any]) -> None:
        """Launch an op on each of the streams, after its size query, and ask for no result: nothing is computed."""
        for _ in self.streams:
            plan = self._plan(info_of(type(op)).split(op).signature)
            outputs = self._sized(op, plan, outputs_of(op))
            made = {name: self.empty(layout.shape, layout.dtype) for name, layout in outputs.items()}
            self._launch(op, plan, made, looks=False)

    def _launch(
        self, op: Op[Any, Any], plan: SignaturePlan, made: dict[str, SessionArray], looks: bool = True
    ) -> Status | None:
        def launch(stream: AccelStream, *rest: Any) -> Status | None:
            self.driver.streams.clear()
            status: Status | None = plan.launch(stream, *rest)
            strays = self.driver.streams - {stream.native}
            assert not strays, f"{plan.launch.__qualname__} was given stream {stream.native} and used {strays}"
            return status if looks else None

        return super()._launch(op, plan._replace(stream=next(self._next), launch=launch), made)
