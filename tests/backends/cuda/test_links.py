"""Links between GPUs, over a stand-in for NVML."""

import ctypes
from typing import Any

import pytest

from callboard.backends.cuda.links import device_links
from callboard.core.links import Link

A, B, C, D = (f"GPU-{x * 8}-0000-0000-0000-000000000000" for x in "abcd")
GPUS = [A, B, C, D]


class Nvml:
    """Four GPUs: A and B have four NVLinks to each other, the second of A and the last of B are down; C and D have one
    to a switch; D is without peer access to A."""

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's names, here and below
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:  # noqa: N802
        name = uuid.value.decode()
        if name not in GPUS:
            return 6
        handle._obj.value = 1 + GPUS.index(name)
        return 0

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, index: Any, status: Any) -> int:  # noqa: N802
        assert index.value == 0
        status._obj.value = 4 if {one.value, other.value} == {1, 4} else 0
        return 0

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any, level: Any) -> int:  # noqa: N802
        level._obj.value = 10 if {one.value, other.value} == {1, 2} else 50
        return 0

    def nvmlDeviceGetNvLinkState(self, gpu: Any, link: Any, state: Any) -> int:  # noqa: N802
        links = {1: (0, 2, 3), 2: (0, 1, 2), 3: (5,), 4: (0,)}[gpu.value]
        if link.value >= 12:
            return 2  # invalid argument
        state._obj.value = link.value in links
        return 0

    def nvmlDeviceGetNvLinkVersion(self, gpu: Any, link: Any, version: Any) -> int:  # noqa: N802
        version._obj.value = 6 if gpu.value < 3 else 7
        return 0

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: Any, link: Any, kind: Any) -> int:  # noqa: N802
        kind._obj.value = 0 if gpu.value < 3 else 2
        return 0

    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, gpu: Any, link: Any, pci: Any) -> int:  # noqa: N802
        pci._obj.bus = 3 - gpu.value
        return 0

    def nvmlDeviceGetPciInfo_v3(self, gpu: Any, pci: Any) -> int:  # noqa: N802
        pci._obj.bus = gpu.value
        return 0

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: Any, generation: Any) -> int:  # noqa: N802
        generation._obj.value = 5 if gpu.value < 4 else 4
        return 0

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: Any, width: Any) -> int:  # noqa: N802
        width._obj.value = 16
        return 0


def test_links() -> None:
    slice_, gone = "MIG-" + A[4:], "GPU-" + "e" * 8
    found = {(link.one, link.other): link for link in device_links([A, B, C, D, slice_, gone, A], Nvml())}
    assert list(found) == [(A, B), (A, C), (A, D), (B, C), (B, D), (C, D)]
    assert found[A, B] == Link(one=A, other=B, kind="nvlink", direct=True, count=3, generation=4, ancestor="switch")
    assert found[A, C] == Link(one=A, other=C, kind="pcie", direct=True, generation=5, width=16, ancestor="system")
    assert found[A, D] == Link(one=A, other=D, kind="pcie", direct=False, generation=4, width=16, ancestor="system")
    assert found[C, D] == Link(one=C, other=D, kind="nvlink", direct=True, count=1, generation=5, ancestor="system")


def test_a_driver_that_says_nothing_links_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert device_links([A, B]) == []
    assert device_links([A], Nvml()) == []


def test_an_old_driver_knows_no_peer_access() -> None:
    class Old(Nvml):
        nvmlDeviceGetP2PStatus = None  # noqa: N815
        nvmlDeviceGetNvLinkState = None  # noqa: N815
        nvmlDeviceGetTopologyCommonAncestor = None  # noqa: N815

    (link,) = device_links([A, B], Old())
    assert link == Link(one=A, other=B, kind="pcie", direct=False, generation=5, width=16)
