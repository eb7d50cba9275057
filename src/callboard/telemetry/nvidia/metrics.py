"""``GpuSource``: the figures of the GPUs as metrics."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from callboard.telemetry.families import Group
from callboard.telemetry.nvidia.figures import GpuFigures
from callboard.telemetry.table import family

__all__ = ["GpuSource"]

FIGURES = (
    ("callboard_gpu_power_watts", "power"),
    ("callboard_gpu_power_limit_watts", "power_limit"),
    ("callboard_gpu_energy_joules_total", "energy"),
    ("callboard_gpu_temperature_celsius", "temperature"),
    ("callboard_gpu_memory_temperature_celsius", "memory_temperature"),
    ("callboard_gpu_utilization_ratio", "utilization"),
    ("callboard_gpu_memory_utilization_ratio", "memory_utilization"),
    ("callboard_gpu_pcie_replays_total", "pcie_replays"),
    ("callboard_gpu_mig_enabled", "mig"),
    ("callboard_gpu_row_remap_failed", "row_remap_failed"),
)
"""Metrics of one series for each GPU, and the figure that each shows."""

KINDS = (
    ("callboard_gpu_clock_hertz", {"sm": "sm_clock", "memory": "memory_clock", "video": "video_clock"}),
    ("callboard_gpu_memory_bytes", {"total": "memory_total", "used": "memory_used", "free": "memory_free"}),
    ("callboard_gpu_ecc_errors_total", {"corrected": "ecc_corrected", "uncorrected": "ecc_uncorrected"}),
    ("callboard_gpu_remapped_rows_total", {"corrected": "rows_corrected", "uncorrected": "rows_uncorrected"}),
    ("callboard_gpu_pcie_bytes_total", {"sent": "pcie_sent", "received": "pcie_received"}),
    ("callboard_gpu_nvlink_bytes_total", {"sent": "nvlink_sent", "received": "nvlink_received"}),
)
"""Metrics of several figures, by the value of their last label."""


class GpuSource:
    """A source of :meth:`callboard.telemetry.Telemetry.add`.

    Attributes:
        latest: The last reading.
        xids: Xid events, by UUID of the GPU and number.
        read: Reads now.
    """

    name = "gpus"

    def __init__(self) -> None:
        self.latest: list[GpuFigures] = []
        self.xids: Counter[tuple[str, int]] = Counter()
        self.read: Callable[[], Awaitable[Any]] | None = None

    async def refresh(self) -> None:
        """Wait for the first reading; later ones come by themselves."""
        if not self.latest and self.read is not None:
            await self.read()

    def figures(self) -> list[dict[str, Any]]:
        """The last reading, with numbers of Xid events."""
        return [
            {
                **msgspec.to_builtins(gpu),
                "xids": {str(code): n for (uuid, code), n in self.xids.items() if uuid == gpu.uuid},
            }
            for gpu in self.latest
        ]

    def collect(self) -> Iterator[Group]:
        """The metrics; what a GPU does not support has no series."""
        gpus = [((str(gpu.index), gpu.uuid), gpu) for gpu in self.latest]
        yield family("callboard_gpu_lost"), [(label, int(gpu.lost)) for label, gpu in gpus]
        for name, figure in FIGURES:
            found = [(label, getattr(gpu, figure)) for label, gpu in gpus]
            yield family(name), [(label, float(value)) for label, value in found if value is not None]
        for name, kinds in KINDS:
            several = [((*label, kind), getattr(gpu, figure)) for label, gpu in gpus for kind, figure in kinds.items()]
            yield family(name), [(label, value) for label, value in several if value is not None]
        yield (
            family("callboard_gpu_throttled"),
            [((*label, reason), 1) for label, gpu in gpus for reason in gpu.throttled or ()],
        )
        yield (
            family("callboard_gpu_processes"),
            [(label, len(gpu.processes)) for label, gpu in gpus if gpu.processes is not None],
        )
        numbers = {gpu.uuid: label for label, gpu in gpus}
        yield (
            family("callboard_gpu_xid_errors_total"),
            [((*numbers[uuid], str(code)), n) for (uuid, code), n in self.xids.items() if uuid in numbers],
        )
