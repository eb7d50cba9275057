"""Enumeration over a stand-in for NVML."""

import ctypes
from typing import Any

import pytest

from callboard.backends.cuda import devices
from callboard.backends.cuda.devices import cuda_devices, missing_packages
from callboard.core.errors import BackendUnavailable

A, B, C = (f"GPU-{x * 8}-0000-0000-0000-000000000000" for x in "abc")
SLICES = ["MIG-11111111-0000-0000-0000-000000000000", "MIG-22222222-0000-0000-0000-000000000000"]


class Nvml:
    """``libnvidia-ml`` with these GPUs."""

    def __init__(
        self, uuids: list[str], mig: dict[str, list[str]] | None = None, names: list[str] | None = None
    ) -> None:
        self.uuids = uuids
        self.mig = mig or {}
        self.names = names or ["NVIDIA H200"] * len(uuids)
        self.init = 0
        self.open = 0
        self.hidden: set[int] = set()
        self.all = [*uuids, *(s for part in self.mig.values() for s in part)]

        def nvmlErrorString(status: Any) -> bytes:  # noqa: N802 - a C function, whose restype is set
            return b"Driver Not Loaded"

        self.nvmlErrorString = nvmlErrorString

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's names, here and below
        self.open += self.init == 0
        return self.init

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.uuids)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 1 + index.value
        return 4 if index.value in self.hidden else 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:  # noqa: N802
        major._obj.value, minor._obj.value = 9, 0
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:  # noqa: N802
        memory._obj.total = (141 << 30) // (1 if handle.value <= len(self.uuids) else 7)
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> int:  # noqa: N802
        assert size.value >= 80
        buffer.value = self.all[handle.value - 1].encode()
        return 0

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, size: Any) -> int:  # noqa: N802
        at = handle.value - 1
        buffer.value = (self.names[at] if at < len(self.names) else "NVIDIA H200 MIG 1g.18gb").encode()
        return 0

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:  # noqa: N802
        current._obj.value = self.uuids[handle.value - 1] in self.mig
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> int:  # noqa: N802
        count._obj.value = 7
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, part: Any) -> int:  # noqa: N802
        slices = self.mig[self.uuids[handle.value - 1]]
        if index.value >= len(slices):
            return 6
        part._obj.value = 1 + self.all.index(slices[index.value])
        return 0


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "missing_packages", list)


def uuids(nvml: Nvml, chosen: str | None = None) -> list[str]:
    environ = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    found = cuda_devices(nvml, environ)
    assert [d.index for d in found] == list(range(len(found)))
    assert nvml.open == 0
    return [d.uuid for d in found]


def test_what_a_device_says() -> None:
    (info,) = cuda_devices(Nvml([A]), {})
    assert (info.backend, info.uuid, info.name) == ("cuda", A, "NVIDIA H200")
    assert (info.total_bytes, info.compute_capability) == (141 << 30, (9, 0))


@pytest.mark.parametrize(
    "chosen, want",
    [
        (None, [A, B, C]),
        ("0,1,2", [A, B, C]),
        ("2,0", [C, A]),
        (" 1 , 0 ", [B, A]),
        ("1,1", [B]),
        (f"{B},{A}", [B, A]),
        ("GPU-bbbb", [B]),
        ("0,-1,1", [A]),
        ("1,7,0", [B]),
        ("0,GPU-unknown,1", [A]),
    ],
)
def test_cuda_visible_devices(chosen: str | None, want: list[str]) -> None:
    assert uuids(Nvml([A, B, C]), chosen) == want


@pytest.mark.parametrize("chosen", ["", "-1", "9", "GPU-unknown", "NoDevFiles"])
def test_nothing_visible(chosen: str) -> None:
    with pytest.raises(BackendUnavailable, match=r"CUDA_VISIBLE_DEVICES is .*NVIDIA H200") as caught:
        uuids(Nvml([A]), chosen)
    assert repr(chosen) in str(caught.value)


def test_mig_slices_stand_for_their_gpu() -> None:
    nvml = Nvml([A, B], {B: SLICES})
    assert uuids(nvml) == [A, *SLICES]
    assert uuids(nvml, "1") == SLICES
    assert uuids(nvml, f"{SLICES[1]},0") == [SLICES[1], A]
    assert uuids(nvml, "MIG-1111") == [SLICES[0]]
    found = cuda_devices(nvml, {})
    assert found[1].name == "NVIDIA H200 MIG 1g.18gb"
    assert found[1].total_bytes == (141 << 30) // 7
    with pytest.raises(BackendUnavailable, match="without a MIG device"):
        uuids(Nvml([A], {A: []}))


def test_indices_among_different_gpus_are_warned_about(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    mixed = Nvml([A, B], names=["NVIDIA H200", "NVIDIA T4"])
    assert uuids(mixed, B) == [B]
    assert caplog.records == []
    assert uuids(mixed, "1") == [B]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in caplog.text


def test_a_gpu_of_somebody_else_is_passed_over() -> None:
    nvml = Nvml([A, B])
    nvml.hidden.add(0)
    assert uuids(nvml) == [B]


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    with pytest.raises(BackendUnavailable, match=r"no NVIDIA driver: libnvidia-ml\.so\.1: cannot open.*install"):
        cuda_devices(None, {})


def test_a_driver_that_does_not_answer() -> None:
    nvml = Nvml([A])
    nvml.init = 9
    with pytest.raises(BackendUnavailable, match=r"Driver Not Loaded \(9\)"):
        uuids(nvml)


def test_no_gpu() -> None:
    with pytest.raises(BackendUnavailable, match="finds no GPU"):
        uuids(Nvml([]))


def test_missing_packages_name_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "missing_packages", lambda: ["nvmath-python"])
    with pytest.raises(BackendUnavailable, match=r'nvmath-python is missing: pip install "callboard\[cuda13\]"'):
        uuids(Nvml([A]))


def test_packages_are_looked_for_without_importing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        devices, "PACKAGES", {"json.decoder": "there", "no_such_package": "gone", "no_such.module": "away"}
    )
    assert missing_packages() == ["gone", "away"]
