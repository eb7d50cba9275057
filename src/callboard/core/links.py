"""``Link``: how two devices of one machine reach each other's memory."""

from typing import Literal

import msgspec

__all__ = ["Link", "LinkKind"]

LinkKind = Literal["nvlink", "pcie", "shared memory"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of two devices, the same in both directions.

    Attributes:
        one, other: UUIDs of the devices.
        kind: ``"nvlink"``, ``"pcie"``, or ``"shared memory"`` if the devices' memory is the host's.
        direct: One device can read the other's memory, without arrays of the host in between.
        count: NVLinks between the two; 0 for other kinds.
        generation: NVLink or PCIe generation of the slower device; 0 when the driver does not report it.
        width: PCIe lanes of the narrower device; 0 when the driver does not report them.
        ancestor: Nearest common ancestor of the two devices on the PCIe tree: ``"board"``, ``"switch"``,
            ``"switches"``, ``"host bridge"``, ``"node"`` (the same NUMA node) or ``"system"``; empty when the driver
            does not report it.
    """

    one: str
    other: str
    kind: LinkKind
    direct: bool
    count: int = 0
    generation: int = 0
    width: int = 0
    ancestor: str = ""
