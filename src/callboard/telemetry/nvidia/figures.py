"""``GpuFigures``: what NVML says of a GPU. What a GPU does not support is None, never 0."""

import msgspec

__all__ = ["GpuFigures", "GpuProcess"]


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that has a context on a GPU.

    Attributes:
        pid: The process, as the driver numbers it; in a container, this may differ from the container's number.
        memory: Bytes of GPU memory.
    """

    pid: int
    memory: int | None = None


class GpuFigures(msgspec.Struct, frozen=True):
    """A GPU.

    Attributes:
        index: Number of the GPU for NVML, which may differ from CUDA's; compare UUIDs.
        uuid, name: ``"GPU-…"``, product name.
        lost: The GPU does not answer any more: it has fallen off the bus, or is being reset. Other fields are None.
        power, power_average, power_limit: Watts: now, mean of the last second, enforced limit.
        energy: Joules since the driver was loaded.
        temperature, memory_temperature: Degrees Celsius.
        sm_clock, memory_clock, video_clock: Hertz.
        throttled: Names of the reasons why the clocks are lower than they could be; empty: none.
        utilization, memory_utilization: Share of the last sampling period with a kernel, or with memory traffic.
        memory_total, memory_used, memory_free: Bytes; what the driver reserves counts as neither used nor free.
        ecc_corrected, ecc_uncorrected: Memory errors since the driver was loaded.
        ecc_corrected_ever, ecc_uncorrected_ever: Memory errors in the life of the GPU.
        rows_corrected, rows_uncorrected: Rows of memory that were remapped after such errors.
        row_remap_pending, row_remap_failed: A reset is needed for a remapping; a remapping has failed.
        pcie_sent, pcie_received: Bytes over PCIe since the driver was loaded, as the GPU sees it.
        pcie_replays: Packets that were sent again.
        nvlink_sent, nvlink_received: Bytes over all NVLink links since the driver was loaded.
        processes: Processes with a CUDA context.
        mig: Whether the GPU is divided into MIG devices.
        mig_devices: UUIDs of these.
        recovery_action: What the GPU needs before it can be used again; ``"none"`` if nothing.
    """

    index: int
    uuid: str
    name: str = ""
    lost: bool = False
    power: float | None = None
    power_average: float | None = None
    power_limit: float | None = None
    energy: float | None = None
    temperature: float | None = None
    memory_temperature: float | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    video_clock: float | None = None
    throttled: list[str] | None = None
    utilization: float | None = None
    memory_utilization: float | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    memory_free: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected_ever: int | None = None
    ecc_uncorrected_ever: int | None = None
    rows_corrected: int | None = None
    rows_uncorrected: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    pcie_sent: int | None = None
    pcie_received: int | None = None
    pcie_replays: int | None = None
    nvlink_sent: int | None = None
    nvlink_received: int | None = None
    processes: list[GpuProcess] | None = None
    mig: bool | None = None
    mig_devices: list[str] | None = None
    recovery_action: str | None = None
