"""Links between the GPUs of a machine, as reported by NVML."""

from collections.abc import Sequence
from ctypes import Structure, byref, c_char, c_int, c_uint, c_void_p
from itertools import combinations
from typing import Any

from callboard.backends.cuda.nvml import Nvml, opened
from callboard.core.errors import BackendUnavailable
from callboard.core.links import Link

__all__ = ["device_links"]

NVLINKS = 18
"""Most links of a GPU that NVML counts (NVML_NVLINK_MAX_LINKS)."""
P2P_READ = 0
"""``nvmlGpuP2PCapsIndex_t``."""
TO_GPU, TO_SWITCH = 0, 2
"""``nvmlIntNvLinkDeviceType_t``."""
NVLINK_GENERATION = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}
"""NVLink generation by ``nvmlNvlinkVersion_t``, which also counts 2.2 and 3.1."""
ANCESTORS = {0: "board", 10: "switch", 20: "switches", 30: "host bridge", 40: "node", 50: "system"}
"""Nearest common ancestor by ``nvmlGpuTopologyLevel_t``."""


class _PciInfo(Structure):
    _fields_ = (
        ("legacy", c_char * 16),
        *((name, c_uint) for name in ("domain", "bus", "device", "id", "subsystem")),
        ("bus_id", c_char * 32),
    )

    @property
    def place(self) -> tuple[int, int, int]:
        return self.domain, self.bus, self.device


class _Links:
    """The active NVLinks of a GPU: the generation, how many lead to a switch, and how many to each other GPU."""

    def __init__(self, nvml: Nvml, gpu: c_void_p) -> None:
        self.generation = self.switched = 0
        self.direct: dict[tuple[int, int, int], int] = {}
        for link in range(NVLINKS):
            number = c_uint(link)
            if nvml.number("nvmlDeviceGetNvLinkState", gpu, number) != 1:
                continue
            version = nvml.number("nvmlDeviceGetNvLinkVersion", gpu, number)
            self.generation = max(self.generation, NVLINK_GENERATION.get(version or 0, 0))
            remote = nvml.number("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, number)
            if remote == TO_SWITCH:
                self.switched += 1
                continue
            pci = _PciInfo()
            if nvml.status("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, number, byref(pci)) == 0:
                self.direct[pci.place] = self.direct.get(pci.place, 0) + 1


def device_links(uuids: Sequence[str], library: Any = None) -> list[Link]:
    """The links between GPUs, each pair once. MIG slices have none: they cannot read each other's memory.

    Args:
        uuids: UUIDs of the GPUs.
        library: Stands in for ``libnvidia-ml.so.1``.
    """
    whole = [uuid for uuid in dict.fromkeys(uuids) if uuid.startswith("GPU-")]
    if len(whole) < 2:
        return []
    try:
        with opened(library) as nvml:
            gpus = {uuid: gpu for uuid in whole if (gpu := nvml.device(uuid)) is not None}
            nvlinks = {uuid: _Links(nvml, gpu) for uuid, gpu in gpus.items()}
            return [_link(nvml, gpus, nvlinks, *pair) for pair in combinations(gpus, 2)]
    except BackendUnavailable:  # no driver, so nothing is known
        return []


def _link(nvml: Nvml, gpus: dict[str, c_void_p], nvlinks: dict[str, _Links], one: str, other: str) -> Link:
    readable = nvml.number("nvmlDeviceGetP2PStatus", gpus[one], gpus[other], c_int(P2P_READ)) == 0
    back = nvml.number("nvmlDeviceGetP2PStatus", gpus[other], gpus[one], c_int(P2P_READ)) == 0
    ancestor = ANCESTORS.get(_known(nvml.number("nvmlDeviceGetTopologyCommonAncestor", gpus[one], gpus[other]), -1), "")
    direct = readable and back
    count = _count(nvml, gpus, nvlinks, one, other) if direct else 0
    if count:
        generation = min(nvlinks[one].generation, nvlinks[other].generation)
        return Link(
            one=one, other=other, kind="nvlink", direct=True, count=count, generation=generation, ancestor=ancestor
        )
    ends = gpus[one], gpus[other]
    # The most that the two can: an idle GPU's link is slower than that.
    generation = min(_known(nvml.number("nvmlDeviceGetMaxPcieLinkGeneration", gpu), 0) for gpu in ends)
    width = min(_known(nvml.number("nvmlDeviceGetMaxPcieLinkWidth", gpu), 0) for gpu in ends)
    return Link(one=one, other=other, kind="pcie", direct=direct, generation=generation, width=width, ancestor=ancestor)


def _known(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _count(nvml: Nvml, gpus: dict[str, c_void_p], nvlinks: dict[str, _Links], one: str, other: str) -> int:
    """NVLinks between two GPUs: through switches as many as the one with fewer has."""
    pci = _PciInfo()
    if nvml.status("nvmlDeviceGetPciInfo_v3", gpus[other], byref(pci)) == 0:
        between = nvlinks[one].direct.get(pci.place, 0)
        if between:
            return between
    return min(nvlinks[one].switched, nvlinks[other].switched)
