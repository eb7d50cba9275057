# ruff: noqa: N801, N802, N815 - the names of pynvml
"""A module like ``pynvml`` with one GPU, whose answers the test sets."""

import queue
from types import SimpleNamespace
from typing import Any

UUID = "GPU-11111111-2222-3333-4444-555555555555"


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_Timeout(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


def field(value: int, kind: int = 3) -> SimpleNamespace:
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[kind]
    return SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(**{member: value}))


ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetPowerUsage": 311_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_500,
    "nvmlDeviceGetTemperature": 41,
    "nvmlDeviceGetClockInfo": lambda clock: {1: 1980, 2: 2619, 3: 1545}[clock],
    "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x40,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87, memory=25),
    "nvmlDeviceGetMemoryInfo": lambda version=0: SimpleNamespace(
        total=80 << 30, used=10 << 30 if version == 2 else 11 << 30, free=69 << 30
    ),
    "nvmlDeviceGetTotalEccErrors": lambda error, counter: 1 + error + 2 * counter,
    "nvmlDeviceGetRemappedRows": (5, 6, 0, 1),
    "nvmlDeviceGetPcieReplayCounter": 7,
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=42, usedGpuMemory=1 << 20)],
    "nvmlDeviceGetMigMode": [1, 1],
    "nvmlDeviceGetMaxMigDeviceCount": 2,
}
FIELDS: dict[int, SimpleNamespace] = {
    82: field(55, 1),
    138: field(3),
    139: field(4),
    185: field(300_000, 1),
    186: field(310_500, 1),
    197: field(1000),
    198: field(2000),
    230: field(0, 1),
}


class FakeNvml:
    """The module.

    Attributes:
        answers: Results of functions, or functions of the arguments after the handle; one that is absent is not
            supported.
        fields: Values of fields; one that is absent is not supported.
        events: What the driver tells next: an event, or an error to raise.
        calls: Names of functions that were called.
        lost: The GPU does not answer.
        absent: There is no driver.
    """

    nvmlMemory_v2 = 2
    NVMLError = NVMLError
    NVMLError_GpuIsLost = NVMLError_GpuIsLost
    NVMLError_Timeout = NVMLError_Timeout

    def __init__(self) -> None:
        self.answers, self.fields = dict(ANSWERS), dict(FIELDS)
        self.events: queue.Queue[Any] = queue.Queue()
        self.calls: list[str] = []
        self.lost = self.absent = False

    def nvmlInit(self) -> None:
        self.calls.append("nvmlInit")
        if self.absent:
            raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")

    def nvmlShutdown(self) -> None:
        self.calls.append("nvmlShutdown")

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return "gpu"

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        if self.lost:
            raise NVMLError_GpuIsLost("GPU is lost")
        return UUID if handle == "gpu" else "MIG-1"

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> str:
        if index:
            raise NVMLError_NotSupported("Not Found")
        return "mig"

    def nvmlDeviceGetFieldValues(self, handle: Any, wanted: list[tuple[int, int]]) -> list[SimpleNamespace]:
        absent = SimpleNamespace(nvmlReturn=3, valueType=0, value=None)
        return [self.fields.get(number, absent) for number, _ in wanted]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:
        return 0x8 | 0x8000

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: int, events: object) -> None:
        self.registered = kinds

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> Any:
        try:
            event = self.events.get(timeout=milliseconds / 1000)
        except queue.Empty:
            raise NVMLError_Timeout("Timeout") from None
        if isinstance(event, BaseException):
            raise event
        return event

    def nvmlEventSetFree(self, events: object) -> None:
        self.calls.append("nvmlEventSetFree")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(handle: Any, *args: Any) -> Any:
            self.calls.append(name)
            if self.lost:
                raise NVMLError_GpuIsLost("GPU is lost")
            if name not in self.answers:
                raise NVMLError_NotSupported("Not Supported")
            answer = self.answers[name]
            return answer(*args) if callable(answer) else answer

        return call

    def tell(self, kind: int, code: int) -> None:
        """Have the driver tell of an event."""
        self.events.put(SimpleNamespace(device="gpu", eventType=kind, eventData=code))
