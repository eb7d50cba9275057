"""The device and its streams over a stand-in for the driver."""

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from host_backend import INFO, HostCudaBackend
from host_driver import HostDriver

from callboard.backends.cuda.device import CudaDevice
from callboard.core.backend import DeviceInfo, Memory
from callboard.core.errors import (
    AccelError,
    BackendUnavailable,
    ContextPoisoned,
    DriverError,
    OutOfMemory,
    Unrecoverable,
    UnsupportedOp,
)


def test_opening_takes_the_primary_context(device: CudaDevice, driver: HostDriver) -> None:
    assert driver.current == 0xC0
    assert device.info.compute_capability == (9, 0)
    assert device.info.uuid == INFO.uuid
    assert device.memory_info() == (1 << 30, 1 << 34)


def test_a_device_that_the_process_does_not_see(driver: HostDriver) -> None:
    other = DeviceInfo("cuda", 0, "GPU-ffffffff-0000-0000-0000-000000000000", "other", 0)
    with pytest.raises(BackendUnavailable, match=r"GPU-ffffffff.*1 device.*CUDA_VISIBLE_DEVICES"):
        CudaDevice(other, driver)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name, code, cls",
    [
        ("init", 100, BackendUnavailable),
        ("init", 999, BackendUnavailable),
        ("primary_retain", 46, BackendUnavailable),
        ("primary_retain", 2, OutOfMemory),
        ("primary_retain", 214, Unrecoverable),
    ],
)
def test_why_it_cannot_be_opened(driver: HostDriver, name: str, code: int, cls: type[Exception]) -> None:
    driver.statuses[name] = code
    with pytest.raises(cls, match=str(code)):
        HostCudaBackend(driver).open(INFO)


def test_no_memory_says_how_much_there_is(device: CudaDevice, driver: HostDriver) -> None:
    driver.statuses["mem_alloc"] = 2
    with pytest.raises(OutOfMemory, match=r"1,000 bytes on GPU-.*1,073,741,824 of 17,179,869,184 are free"):
        device.allocate(1000)


def test_blocks(device: CudaDevice, driver: HostDriver) -> None:
    blocks = [device.allocate(n) for n in (0, 1, 1000)]
    assert all(b.address % 256 == 0 for b in blocks)
    for block in blocks:
        device.release(block)
    assert driver.blocks == {}


def test_blocks_are_shared_by_handle(device: CudaDevice, driver: HostDriver) -> None:
    block = device.allocate(1000)
    handle = device.share(block)
    assert len(handle) == 64
    assert device.attach(handle) == block.address
    assert driver.opened == [block.address]
    device.detach(block.address)
    assert driver.opened == []
    with pytest.raises(UnsupportedOp, match=r"memory of torch, CuPy.*dev\.copy\(ref\)"):
        device.share(Memory(block.address + 256, 10))
    driver.statuses["ipc_open_handle"] = 201
    with pytest.raises(AccelError, match="201"):
        device.attach(handle)
    device.release(block)


def test_host_memory_is_registered(device: CudaDevice, driver: HostDriver) -> None:
    device.register_host(4096, 8192)
    assert driver.registered == {4096: 8192}
    device.unregister_host(4096)
    assert driver.registered == {}


@pytest.mark.parametrize("priority, cuda", [(-1, 0), (0, -1), (1, -5), (7, -5)])
def test_priorities(device: CudaDevice, driver: HostDriver, priority: int, cuda: int) -> None:
    device.stream(priority)
    assert driver.priorities == [cuda]


# -- events ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, outcome",
    [(0, True), (600, False), (700, ContextPoisoned), (719, ContextPoisoned), (214, Unrecoverable), (1, DriverError)],
)
def test_events_and_streams_are_asked(device: CudaDevice, driver: HostDriver, code: int, outcome: Any) -> None:
    stream = device.stream()
    for asked, name in ((stream.record(), "event"), (stream, "stream")):
        driver.statuses[f"{name}_query"] = code
        if isinstance(outcome, bool):
            assert asked.query() is outcome
        else:
            with pytest.raises(outcome, match=f"cu{name.title()}Query"):
                asked.query()


def test_events_are_used_again(device: CudaDevice, driver: HostDriver) -> None:
    stream, other = device.stream(), device.stream()
    first = stream.record()
    other.wait(first)
    stream.recycle(first)
    assert stream.record() is first
    assert stream.record() is not first
    assert driver.calls == ["event_record", "stream_wait_event", "event_record", "event_record"]


@pytest.mark.parametrize("name", ["event_synchronize", "stream_synchronize"])
def test_waiting_reports_the_context(device: CudaDevice, driver: HostDriver, name: str) -> None:
    stream = device.stream()
    waits: dict[str, Any] = {"event_synchronize": stream.record().synchronize, "stream_synchronize": stream.synchronize}
    waits[name]()
    driver.statuses[name] = 702
    with pytest.raises(ContextPoisoned, match="LAUNCH_TIMEOUT"):
        waits[name]()


@pytest.mark.parametrize("name", ["event_record", "stream_wait_event"])
def test_a_refused_event_call(device: CudaDevice, driver: HostDriver, name: str) -> None:
    stream = device.stream()
    event = stream.record()
    driver.statuses[name] = 700
    with pytest.raises(ContextPoisoned):
        stream.record() if name == "event_record" else stream.wait(event)


def test_events_of_other_backends_are_refused(device: CudaDevice) -> None:
    with pytest.raises(TypeError, match="CUDA streams"):
        device.stream().wait(object())  # type: ignore[arg-type]


def test_signal_posts(device: CudaDevice) -> None:
    libc = ctypes.CDLL(None)
    room = ctypes.create_string_buffer(64)
    for name in ("sem_init", "sem_trywait"):
        getattr(libc, name).argtypes = [ctypes.c_void_p] + [ctypes.c_int, ctypes.c_uint] * (name == "sem_init")
    libc.sem_init(ctypes.addressof(room), 0, 0)
    assert device.stream().signal(ctypes.addressof(room))
    assert libc.sem_trywait(ctypes.addressof(room)) == 0
    assert libc.sem_trywait(ctypes.addressof(room)) != 0


# -- readbacks ---------------------------------------------------------------------------------------------------------


def test_readbacks_take_slots_in_turn(device: CudaDevice, driver: HostDriver) -> None:
    stream, block = device.stream(), device.allocate(8 * 2000)
    numbers = np.arange(2000, dtype=np.int64)
    driver.memcpy_htod(block.address, numbers.ctypes.data, numbers.nbytes, stream.native)
    readbacks = [device.read_back(stream, block.address + 8 * i, 8) for i in range(2000)]
    assert len(driver.pinned) == 2
    assert [np.frombuffer(r.take(), np.int64)[0] for r in readbacks] == list(range(2000))
    for _ in range(5000):
        device.read_back(stream, block.address, 8).take()
    assert len(driver.pinned) == 2
    device.release(block)


def test_a_dropped_readback_gives_its_slot_back(device: CudaDevice) -> None:
    stream, block = device.stream(), device.allocate(64)
    device.read_back(stream, block.address, 64).take()
    free = len(device._slots.free)
    readback = device.read_back(stream, block.address, 64)
    assert len(device._slots.free) == free - 1
    del readback
    assert len(device._slots.free) == free


def test_a_readback_is_taken_once_and_small(device: CudaDevice) -> None:
    stream, block = device.stream(), device.allocate(64)
    readback = device.read_back(stream, block.address, 4)
    readback.take()
    with pytest.raises(RuntimeError, match="taken"):
        readback.take()
    with pytest.raises(ValueError, match="65"):
        device.read_back(stream, block.address, 65)


# -- the context -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, cls",
    [(0, None), (900, None), (2, None), (700, ContextPoisoned), (201, ContextPoisoned), (220, Unrecoverable)],
)
def test_probe(device: CudaDevice, driver: HostDriver, code: int, cls: Any) -> None:
    driver.statuses["ctx_synchronize"] = code
    found = device.probe()
    assert found is None if cls is None else type(found) is cls


def test_probe_from_another_thread(device: CudaDevice, driver: HostDriver) -> None:
    driver.current = None
    found: list[Any] = [object()]

    def look() -> None:
        found[0] = device.probe()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(30)
    assert found == [None]
    assert driver.current == 0xC0


def test_a_context_that_cannot_be_made_current_is_dead(device: CudaDevice, driver: HostDriver) -> None:
    driver.statuses["set_current"] = 709
    assert isinstance(device.probe(), ContextPoisoned)
    driver.statuses.clear()


def test_a_visitor_gets_its_own_context_back(device: CudaDevice, driver: HostDriver) -> None:
    driver.current = 0xBAD
    device.enter()
    assert driver.current == 0xC0
    device.leave()
    assert driver.current == 0xBAD


class Pool:
    """A package with a memory pool."""

    def __init__(self, fails: bool = False) -> None:
        self.emptied = 0
        self.fails = fails
        self.cuda = self

    def is_initialized(self) -> bool:
        return True

    def get_default_memory_pool(self) -> "Pool":
        return self

    get_default_pinned_memory_pool = get_default_memory_pool

    def free_all_blocks(self) -> None:
        self.emptied += 1
        if self.fails:
            raise ValueError("broken")

    empty_cache = free_all_blocks


def test_trim_empties_pools_of_loaded_packages(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    device.trim()
    torch, cupy = Pool(fails=True), Pool()
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    device.trim()
    assert (torch.emptied, cupy.emptied) == (1, 2)


def test_closing_twice(driver: HostDriver) -> None:
    device = HostCudaBackend(driver).open(INFO)
    stream = device.stream()
    stream.recycle(stream.record())
    device.close()
    device.close()
    assert driver.calls.count("primary_release") == 1
    assert len(driver.destroyed) == 2


def test_closing_gives_back_what_nobody_holds(driver: HostDriver) -> None:
    """The context may live on, with CuPy's or torch's help; and so may those who hold memory of it."""
    device = HostCudaBackend(driver).open(INFO)
    stream = device.stream()
    device.allocate(1 << 20)
    device.release(device.allocate(1 << 20))
    held = device.allocate(1 << 20)
    device.read_back(stream, held.address, 8).take()
    device.close()
    assert list(driver.blocks) == [held.address]
    assert driver.pinned == {}
    assert driver.current is None


def test_what_is_held_when_a_device_is_closed_keeps_its_context(driver: HostDriver) -> None:
    device = HostCudaBackend(driver).open(INFO)
    owners: list[Any] = [device.allocate(1 << 20).owner, device.allocate_managed(4096).owner]
    owners.append(device.allocate_shared(4096).owner)
    owners[-1].lease.close()
    device.allocate_managed(4096)
    device.close()
    assert len(driver.blocks) == 3
    while owners:
        assert driver.calls.count("primary_release") == 0
        owners.pop()
        assert len(driver.blocks) == len(owners)
        assert driver.stack == []
    assert driver.calls.count("primary_release") == 1
