"""``Gpus``: reads the figures of all GPUs through ``pynvml`` (package ``nvidia-ml-py``)."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.telemetry.nvidia.figures import GpuFigures, GpuProcess

__all__ = ["ACTIONS", "Gpu", "Gpus", "NvmlMissing", "nvml_module"]

GPU_TEMPERATURE = 0
SM, MEMORY, VIDEO = 1, 2, 3
"""``nvmlClockType_t``."""
CORRECTED, UNCORRECTED = 0, 1
"""``nvmlMemoryErrorType_t``."""
VOLATILE, AGGREGATE = 0, 1
"""``nvmlEccCounterType_t``."""
ALL_LINKS = 0xFFFFFFFF
"""The scope of an NVLink field that adds up the links."""

FIELDS = {
    "memory_temperature": (82, 0),  # NVML_FI_DEV_MEMORY_TEMP
    "nvlink_sent": (138, ALL_LINKS),  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, in KiB
    "nvlink_received": (139, ALL_LINKS),  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, in KiB
    "power_average": (185, 0),  # NVML_FI_DEV_POWER_AVERAGE, in mW
    "power": (186, 0),  # NVML_FI_DEV_POWER_INSTANT, in mW
    "pcie_sent": (197, 0),  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    "pcie_received": (198, 0),  # NVML_FI_DEV_PCIE_COUNT_RX_BYTES
    "recovery_action": (230, 0),  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
}
"""Field ids with their scopes: read in one call. They are part of NVML's ABI."""

MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of the union ``nvmlValue_t``, by ``nvmlValueType_t``."""

THROTTLES = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""``nvmlClocksEventReason…``; that the GPU is idle is not a reason."""

ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
"""``nvmlDeviceGpuRecoveryAction_t``."""


class NvmlMissing(Exception):
    """There is no NVML here; the text says what is missing."""


class Gpu(NamedTuple):
    """A GPU.

    Attributes:
        number: Number of the GPU for NVML.
        handle: NVML's handle.
        uuid, name: ``"GPU-…"``, product name.
    """

    number: int
    handle: Any
    uuid: str
    name: str


def nvml_module() -> Any:
    """The module ``pynvml``.

    Raises:
        NvmlMissing: It is not installed.
    """
    try:
        import pynvml
    except ImportError as e:
        raise NvmlMissing(
            "the package nvidia-ml-py is not installed (extra observability-full-cuda13 or -cuda12)"
        ) from e
    return pynvml


class Gpus:
    """All GPUs of this machine. Methods may wait for the driver; one thread at a time.

    Args:
        nvml: The module ``pynvml``, or an object that has its functions.

    Raises:
        NvmlMissing: There is no driver.
    """

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as e:
            raise NvmlMissing(str(e)) from e
        self._open = True
        self.gpus: list[Gpu] = []
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(nvml.NVMLError):  # one that this process may not see, or that is lost
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
                    self.gpus.append(Gpu(index, handle, uuid, _text(nvml.nvmlDeviceGetName(handle))))
        except nvml.NVMLError as e:
            self.close()
            raise NvmlMissing(str(e)) from e

    def read(self) -> list[GpuFigures]:
        """The figures of all GPUs now."""
        return [self._read(gpu) for gpu in self.gpus]

    def mig_devices(self, gpu: Gpu) -> list[str]:
        """UUIDs of the MIG devices of a GPU."""
        found = []
        for index in range(self._get("nvmlDeviceGetMaxMigDeviceCount", gpu.handle) or 0):
            with contextlib.suppress(self.nvml.NVMLError):  # a place that is not taken
                part = self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, index)
                found.append(_text(self.nvml.nvmlDeviceGetUUID(part)))
        return found

    def recovery_action(self, gpu: Gpu) -> str | None:
        """What the GPU needs before it can be used again; None if it does not say."""
        return _action(self._fields(gpu, ["recovery_action"]).get("recovery_action"))

    def close(self) -> None:
        """Let go of NVML."""
        if self._open:
            self._open = False
            with contextlib.suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()

    def _read(self, gpu: Gpu) -> GpuFigures:
        try:
            self.nvml.nvmlDeviceGetUUID(gpu.handle)
            return self._figures(gpu)
        except self.nvml.NVMLError:  # also GpuIsLost, ResetRequired and Unknown, which a lost GPU answers, too
            return GpuFigures(gpu.number, gpu.uuid, gpu.name, lost=True)

    def _figures(self, gpu: Gpu) -> GpuFigures:
        handle, get = gpu.handle, self._get
        fields = self._fields(gpu, list(FIELDS))
        rates, memory = get("nvmlDeviceGetUtilizationRates", handle), self._memory(handle)
        rows, mig = get("nvmlDeviceGetRemappedRows", handle), get("nvmlDeviceGetMigMode", handle)
        power = fields["power"] if "power" in fields else get("nvmlDeviceGetPowerUsage", handle)
        divided = None if mig is None else bool(mig[0])
        return GpuFigures(
            gpu.number,
            gpu.uuid,
            gpu.name,
            power=_scaled(power, 1e-3),
            power_average=_scaled(fields.get("power_average"), 1e-3),
            power_limit=_scaled(get("nvmlDeviceGetEnforcedPowerLimit", handle), 1e-3),
            energy=_scaled(get("nvmlDeviceGetTotalEnergyConsumption", handle), 1e-3),
            temperature=_scaled(get("nvmlDeviceGetTemperature", handle, GPU_TEMPERATURE), 1.0),
            memory_temperature=_scaled(fields.get("memory_temperature"), 1.0),
            sm_clock=_scaled(get("nvmlDeviceGetClockInfo", handle, SM), 1e6),
            memory_clock=_scaled(get("nvmlDeviceGetClockInfo", handle, MEMORY), 1e6),
            video_clock=_scaled(get("nvmlDeviceGetClockInfo", handle, VIDEO), 1e6),
            throttled=self._throttled(handle),
            utilization=None if rates is None else rates.gpu / 100,
            memory_utilization=None if rates is None else rates.memory / 100,
            memory_total=None if memory is None else memory.total,
            memory_used=None if memory is None else memory.used,
            memory_free=None if memory is None else memory.free,
            ecc_corrected=get("nvmlDeviceGetTotalEccErrors", handle, CORRECTED, VOLATILE),
            ecc_uncorrected=get("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE),
            ecc_corrected_ever=get("nvmlDeviceGetTotalEccErrors", handle, CORRECTED, AGGREGATE),
            ecc_uncorrected_ever=get("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, AGGREGATE),
            rows_corrected=None if rows is None else rows[0],
            rows_uncorrected=None if rows is None else rows[1],
            row_remap_pending=None if rows is None else bool(rows[2]),
            row_remap_failed=None if rows is None else bool(rows[3]),
            pcie_sent=fields.get("pcie_sent"),
            pcie_received=fields.get("pcie_received"),
            pcie_replays=get("nvmlDeviceGetPcieReplayCounter", handle),
            nvlink_sent=_kibibytes(fields.get("nvlink_sent")),
            nvlink_received=_kibibytes(fields.get("nvlink_received")),
            processes=self._processes(handle),
            mig=divided,
            mig_devices=self.mig_devices(gpu) if divided else None if divided is None else [],
            recovery_action=_action(fields.get("recovery_action")),
        )

    def _get(self, name: str, *args: Any) -> Any:
        """What an NVML function returns; None if the GPU, the driver or the package does not have it.

        Raises:
            NVMLError_GpuIsLost
        """
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        if function is None:
            return None
        try:
            return function(*args)
        except self.nvml.NVMLError_GpuIsLost:
            raise
        except self.nvml.NVMLError:
            return None

    def _fields(self, gpu: Gpu, names: list[str]) -> dict[str, Any]:
        values = self._get("nvmlDeviceGetFieldValues", gpu.handle, [FIELDS[name] for name in names])
        found = {}
        for name, value in zip(names, values or (), strict=False):
            if value.nvmlReturn == 0 and value.valueType < len(MEMBERS):
                found[name] = getattr(value.value, MEMBERS[value.valueType])
        return found

    def _memory(self, handle: Any) -> Any:
        version = getattr(self.nvml, "nvmlMemory_v2", None)
        found = None if version is None else self._get("nvmlDeviceGetMemoryInfo", handle, version)
        return found or self._get("nvmlDeviceGetMemoryInfo", handle)  # which counts what is reserved as used

    def _throttled(self, handle: Any) -> list[str] | None:
        bits = self._get("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # the name before driver 535
            bits = self._get("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if bits is None:
            return None
        return [name for bit, name in THROTTLES.items() if bits & bit and name != "gpu_idle"]

    def _processes(self, handle: Any) -> list[GpuProcess] | None:
        processes = self._get("nvmlDeviceGetComputeRunningProcesses", handle)
        if processes is None:
            return None
        return [GpuProcess(each.pid, each.usedGpuMemory) for each in processes]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)  # bytes before nvidia-ml-py 11.5


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _kibibytes(value: int | None) -> int | None:
    return None if value is None else value * 1024


def _action(value: int | None) -> str | None:
    if value is None:
        return None
    return ACTIONS[value] if value < len(ACTIONS) else f"action_{value}"
