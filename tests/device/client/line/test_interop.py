"""Arrays across the border of a device: both ways without a copy in a thread, refused with a way out in a process."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.core import registry
from callboard.core.ref import DeferredRef
from callboard.device.protocol.residents.foreign import exported
from callboard.testing.faults import Faults
from callboard.testing.faulty import FaultyBackend

A = np.arange(12, dtype="f4").reshape(3, 4)


class Owner(np.ndarray[Any, Any]):
    """An array that a weak reference can watch."""


BOUND = 20.0


async def freed(device: cb.Device, watched: "weakref.ref[Any]") -> None:
    """Wait until the device has let go of it."""
    async with asyncio.timeout(BOUND):
        while watched() is not None:
            await device.stats()


# -- ours in others' hands ---------------------------------------------------------------------------------------------


async def test_numpy_reads_and_writes_the_devices_memory(cpu_device: cb.Device) -> None:
    a = cpu_device.put(A)
    product = cpu_device.blas.gemm(a, a.T)  # pending when it is asked for
    view = np.from_dlpack(product)
    np.testing.assert_array_equal(view, A @ A.T)
    view[0, 0] = -1
    assert (await product.get())[0, 0] == -1
    await cpu_device.fill(product, 5)
    assert view.min() == view.max() == 5
    assert product.__dlpack_device__() == (1, 0)
    assert product.raw_device_ptr() == view.ctypes.data
    assert a[1:].raw_device_ptr() - a.raw_device_ptr() == 16


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x[::-1, 1::2], lambda x: x[1], lambda x: x[2, 3], lambda x: x[:0], lambda x: x[None]],
)
async def test_any_view(cpu_device: cb.Device, view: Any) -> None:
    ref = view(cpu_device.put(A))
    np.testing.assert_array_equal(np.from_dlpack(ref), view(A))


@pytest.mark.parametrize("name", ["f16", "f64", "c64", "i8", "u64", "bool", "bf16", "f8_e4m3"])
async def test_dtypes(cpu_device: cb.Device, name: str) -> None:
    ref = cpu_device.zeros(3, name)
    said = exported("test", ref)
    assert (said.dtype.name, said.shape, said.device) == (name, (3,), (1, 0))
    assert said.address == ref.raw_device_ptr()


async def test_versions_copies_and_devices(cpu_device: cb.Device) -> None:
    ref = cpu_device.put(A)
    assert "dltensor_versioned" in repr(ref.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(ref.__dlpack__())
    copied = np.from_dlpack(ref, copy=True)
    copied[:] = 0
    np.testing.assert_array_equal(await ref.get(), A)
    with pytest.raises(BufferError, match="DLPack device"):
        ref.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream is 1"):
        ref.__dlpack__(stream=1)
    with pytest.raises(AttributeError, match="from_dlpack"):
        _ = ref.__cuda_array_interface__
    with pytest.raises(BufferError, match="reinterpret it as u8"):
        cpu_device.zeros(2, "f4_e2m1").__dlpack__()


@pytest.mark.slow
async def test_an_export_pins_its_memory_until_it_is_dropped(cpu_device: cb.Device) -> None:
    ref = cpu_device.put(A)
    view = np.from_dlpack(ref)
    part = view[1:]
    unused = ref.__dlpack__()
    ref.free()
    with pytest.raises(cb.GpuRefStale, match="freed"):
        np.from_dlpack(ref)
    others = [cpu_device.full((3, 4), 9) for _ in range(8)]  # of the size that a freed block would serve
    await cpu_device.drain()
    np.testing.assert_array_equal(view, A)
    assert (await cpu_device.stats()).buffers == len(others) + 1
    del view, unused
    gc.collect()
    assert (await cpu_device.stats()).buffers == len(others) + 1
    np.testing.assert_array_equal(part, A[1:])
    del part
    gc.collect()
    async with asyncio.timeout(BOUND):
        while (await cpu_device.stats()).buffers != len(others):
            pass
    last = np.from_dlpack(others[0])
    await cpu_device.close()
    assert last.sum() == 9 * 12


async def test_an_export_waits_for_what_was_called_before(fault: Faults) -> None:
    async with fault("slow", at=2, delay=0.3, isolation="thread") as device:
        ref = device.put(np.zeros(4, "f4"))
        device.fill(ref, 3)
        assert np.from_dlpack(ref).tolist() == [3, 3, 3, 3]


async def test_an_export_of_what_failed_raises_the_root_cause(fault: Faults) -> None:
    async with fault("oom", at=2, isolation="thread") as device:
        bad = device.copy(device.put(A))
        with pytest.raises(cb.OutOfMemory, match="injected at op 2"):
            np.from_dlpack(bad)
        with pytest.raises(cb.OutOfMemory):
            await bad


async def test_from_another_thread(cpu_device: cb.Device) -> None:
    ref = cpu_device.put(A)

    def work() -> float:
        return float(np.from_dlpack(cpu_device.blas.gemm(ref, ref.T)).sum())

    assert await asyncio.to_thread(work) == (A @ A.T).sum()


async def test_another_thread_defers_a_reader_meanwhile(cpu_device: cb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a = cpu_device.put(A)
    deferrals: Any = cpu_device._port.deferrals
    submit_readers = deferrals.before_write
    later: list[cb.GpuRef] = []

    def before_write(allocation: Any) -> None:
        submit_readers(allocation)
        later.append(a + 1.0)  # as another thread may call now

    monkeypatch.setattr(deferrals, "before_write", before_write)
    view = np.from_dlpack(a)
    monkeypatch.undo()
    assert [isinstance(one, DeferredRef) for one in later] == [False]  # its op is before what is written to the view
    np.testing.assert_array_equal(await later[0].get(), view + 1)


async def test_another_thread_calls_or_frees_meanwhile(cpu_device: cb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = cpu_device.put(A), cpu_device.put(A)
    port, interop = cpu_device._port, cpu_device._interop
    flush = port.flush

    def flushed() -> None:
        flush()
        monkeypatch.undo()
        await_thread(lambda: cpu_device.copy(b))  # queued behind the calls that have been sent

    def await_thread(call: Any) -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(BOUND)

    monkeypatch.setattr(port, "flush", flushed)
    assert np.from_dlpack(a)[1, 1] == A[1, 1]

    lend = interop._lend

    def lent(*args: Any, **options: Any) -> Any:
        found = lend(*args, **options)
        a.free()
        return found

    monkeypatch.setattr(interop, "_lend", lent)
    with pytest.raises(cb.GpuRefStale, match="freed"):
        a.__dlpack__()


async def test_on_the_callers_own_loop() -> None:
    async with cb.device("cpu", isolation="thread", dispatcher="caller") as device:
        product = device.blas.gemm(device.put(A), device.put(A.T.copy()))
        view = np.from_dlpack(product)
        np.testing.assert_array_equal(view, A @ A.T)
        product.free()
        mine = np.zeros(3)
        await device.fill(device.adopt(mine), 2)
        assert mine.tolist() == [2, 2, 2]
        np.testing.assert_array_equal(view, A @ A.T)


async def test_the_stream_that_wrote_last(cpu_device: cb.Device) -> None:
    ref = cpu_device.put(A)
    first = ref.last_write_stream
    assert first is not None
    cpu_device.blas.scal(ref[0], alpha=2)
    assert ref.last_write_stream not in (None, first)


async def test_asarray_says_what_to_write(cpu_device: cb.Device) -> None:
    with pytest.raises(TypeError, match=r"await ref\.get\(\)"):
        np.asarray(cpu_device.put(A))
    with pytest.raises(TypeError, match=r"is a ref already; copy it \(dev\.put, dev\.copy\)"):
        cpu_device.adopt(cpu_device.put(A))


def test_asarray_of_a_blocking_ref_is_its_value() -> None:
    with cb.sync.device("cpu", isolation="thread") as cpu:
        ref = cpu.put(A)
        np.testing.assert_array_equal(np.asarray(ref) + 1, A + 1)
        assert np.asarray(ref, "f8").dtype == np.float64
        assert np.from_dlpack(ref).base is not None
        mine = np.zeros(3)
        cpu.fill(cpu.adopt(mine), 2).result()
        assert mine.tolist() == [2, 2, 2]


# -- others' in ours ---------------------------------------------------------------------------------------------------


async def test_adopted_memory_is_shared(cpu_device: cb.Device) -> None:
    mine = np.zeros((4, 6), "f4")
    ref = cpu_device.adopt(mine[::-1, ::2])
    assert ref.done()
    await cpu_device.fill(ref, 7)
    assert mine[:, ::2].min() == 7
    assert mine[:, 1::2].max() == 0
    mine[3, 0] = 1
    assert (await ref.get())[0, 0] == 1
    np.testing.assert_array_equal(np.from_dlpack(ref), mine[::-1, ::2])


async def test_the_owner_lives_until_the_buffer_is_freed_and_unused(fault: Faults) -> None:
    async with fault("hang", at=1, isolation="thread") as device:
        mine = np.zeros(4).view(Owner)
        owner = weakref.ref(mine)
        ref = device.adopt(mine)
        del mine
        copy = device.copy(ref)  # in flight, until the stream goes on
        ref.free()
        gc.collect()
        await device.stats()
        assert owner() is not None
        backend = registry.backend(device._port.backend)
        assert isinstance(backend, FaultyBackend)
        backend.opened[-1].release_hang()
        assert (await copy.get()).sum() == 0
        await freed(device, owner)


async def test_what_cannot_be_adopted(cpu_device: cb.Device) -> None:
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    odd = np.zeros(16, "u1")[1:13].view("V3").view([("a", "u1"), ("b", "<u2")])["b"]
    for array in (read_only, odd, np.zeros(3, ">f4")):
        with pytest.raises(TypeError, match=r"use dev\.put"):
            cpu_device.adopt(array)
    with pytest.raises(TypeError, match="list is not an array"):
        cpu_device.adopt([1, 2])
    assert (await cpu_device.put([1.0, 2.0]).get()).tolist() == [1, 2]


class OnAnotherDevice:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("on CUDA")


async def test_an_array_of_another_device_is_refused(cpu_device: cb.Device) -> None:
    with pytest.raises((TypeError, BufferError, RuntimeError)):
        cpu_device.put(OnAnotherDevice())


# -- process isolation -------------------------------------------------------------------------------------------------


async def test_a_process_refuses_and_names_the_way_out() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as device:
        ref = device.put(A)
        with pytest.raises(BufferError, match="isolation='thread'"):
            np.from_dlpack(ref)
        with pytest.raises(TypeError, match="isolation='thread'"):
            ref.raw_device_ptr()
        with pytest.raises(AttributeError, match="isolation='thread'"):
            _ = ref.__cuda_array_interface__
        with pytest.raises(TypeError, match="copy it"):
            device.adopt(A.copy())
        with pytest.raises(TypeError, match="copy it"):
            device.put(OnAnotherDevice())
        assert ref.last_write_stream is None
