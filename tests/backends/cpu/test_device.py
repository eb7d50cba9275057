import ctypes
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from callboard.backends.cpu import backend
from callboard.backends.cpu import device as module
from callboard.backends.cpu.device import CpuDevice
from callboard.core.backend import AccelStream, machine
from callboard.core.errors import OutOfMemory
from callboard.testing.faulty import FaultyBackend


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    opened = backend.open(backend.devices()[0])
    yield opened
    opened.close()


def test_there_is_one_device() -> None:
    (info,) = backend.devices()
    assert (info.backend, info.index, info.uuid, info.compute_capability) == ("cpu", 0, "CPU-0", (0, 0))
    assert info.total_bytes == psutil.virtual_memory().total
    assert info.name
    assert backend.isolation == "thread"
    assert backend.environment(info) == {}


def test_libraries_go_by_their_names() -> None:
    backend.preload()
    libraries = backend.libraries()
    assert {"memory", "blas"} <= set(libraries)
    assert all(cls.name == lib for lib, cls in libraries.items())


@pytest.mark.parametrize("nbytes", [0, 1, 255, 256, 1 << 20])
def test_blocks_are_aligned_and_can_be_written(device: CpuDevice, nbytes: int) -> None:
    block = device.allocate(nbytes)
    assert (block.address % 256, block.nbytes) == (0, nbytes)
    ctypes.memset(block.address, 0x5A, nbytes)
    assert ctypes.string_at(block.address, nbytes) == b"\x5a" * nbytes
    device.release(block)
    assert block.owner is None


def test_blocks_do_not_overlap(device: CpuDevice) -> None:
    blocks = sorted((device.allocate(1000) for _ in range(50)), key=lambda b: b.address)
    for one, other in itertools.pairwise(blocks):
        assert one.address + one.nbytes <= other.address


@pytest.mark.parametrize("nbytes", [1 << 46, 1 << 62])
def test_more_than_there_is_is_out_of_memory(device: CpuDevice, nbytes: int) -> None:
    with pytest.raises(OutOfMemory, match=rf"{nbytes} bytes on CPU-0; \d+ are free"):
        device.allocate(nbytes)


def test_what_the_kernel_would_grant_and_not_have_is_refused(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "memory", lambda: (1 << 28, 1 << 40))
    device.release(device.allocate(1 << 28))
    with pytest.raises(OutOfMemory):
        device.allocate((1 << 28) + 1)
    monkeypatch.setattr(module, "memory", lambda: (0, 0))  # a system that does not say
    device.release(device.allocate((1 << 28) + 1))


def test_memory_info_is_the_machines(device: CpuDevice) -> None:
    free, total = device.memory_info()
    assert total == psutil.virtual_memory().total
    assert 0 < free <= total


def test_memory_where_proc_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any, **options: Any) -> Any:
        raise FileNotFoundError

    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    total = psutil.virtual_memory().total
    monkeypatch.setattr(machine, "open", missing, raising=False)
    assert machine.memory() == (total, total)
    monkeypatch.setattr(machine.os, "sysconf", unknown)
    assert machine.memory() == (0, 0)


def test_bytes_are_read_back_behind_the_work(device: CpuDevice) -> None:
    stream, gate, block = device.stream(), threading.Event(), device.allocate(4)
    ctypes.memset(block.address, 1, 4)
    stream.submit(gate.wait, 45)
    stream.submit(ctypes.memset, block.address, 2, 4)
    readback = device.read_back(stream, block.address, 4)
    stream.submit(ctypes.memset, block.address, 3, 4)
    with pytest.raises(RuntimeError, match="has not passed the copy"):
        readback.take()
    gate.set()
    stream.synchronize()
    assert readback.take() == b"\2\2\2\2"
    with pytest.raises(RuntimeError, match="have been taken"):
        readback.take()


def test_only_its_own_kind_of_stream_is_read_back_on(device: CpuDevice) -> None:
    wrapped = FaultyBackend("cpu")
    other = wrapped.open(wrapped.devices()[0])
    stream: AccelStream = other.stream()
    with pytest.raises(TypeError, match="stream is FaultyStream"):
        device.read_back(stream, 0, 0)
    other.close()


def test_streams_have_numbers_of_their_own_and_end_with_the_device() -> None:
    opened = backend.open(backend.devices()[0])
    streams = [opened.stream(priority) for priority in (-1, 0, 1)]
    assert [s.id for s in streams] == [0, 1, 2]
    opened.close()
    assert not any(s._thread.is_alive() for s in streams)


def test_a_cpu_is_well_and_needs_no_preparation(device: CpuDevice) -> None:
    assert device.probe() is None
    device.use()
    device.trim()
    device.register_host(4096, 4096)
    device.unregister_host(4096)
