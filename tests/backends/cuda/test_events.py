"""Events, managed and shared memory over the stand-in for the driver: which calls they become."""

import itertools

import numpy as np
import pytest
from host_backend import HostSession
from host_driver import HostDriver

from callboard.backends.cuda.driver import CPU_DEVICE
from callboard.core.errors import GpuRefStale, OutOfMemory, UnsupportedOp
from callboard.kernel import ipc
from callboard.kernel.event import Destroy, Elapsed, GetIpcHandle, IpcEventHandle, OpenIpcHandle, Record, Wait
from callboard.kernel.managed import Advise, Allocate, Prefetch
from callboard.kernel.memory import Fill

numbers = itertools.count(1)


def test_seconds_are_those_of_the_device_clock(session: HostSession, driver: HostDriver) -> None:
    start, end = next(numbers), next(numbers)
    session.submit(Record(event=start))
    driver.clock += 12.5
    session.submit(Record(event=end))
    assert session.submit(Elapsed(start=start, end=end)) == pytest.approx(12.5e-3)
    assert session.submit(Elapsed(start=end, end=start)) == pytest.approx(-12.5e-3)
    destroyed = len(driver.destroyed)
    session.submit(Destroy(event=start))
    assert len(driver.destroyed) == destroyed + 1


def test_waits_and_handles_are_the_drivers(session: HostSession, driver: HostDriver) -> None:
    event, opened = next(numbers), next(numbers)
    session.submit(Record(event=event, timing=False, interprocess=True))
    driver.calls.clear()
    session.submit(Wait(event=event))
    assert driver.calls.count("stream_wait_event") == 1
    handle = session.submit(GetIpcHandle(event=event))
    session.submit(OpenIpcHandle(event=opened, handle=handle.as_bytes().hex()))
    session.submit(Wait(event=opened))
    with pytest.raises(UnsupportedOp, match="which records it"):
        session.device.open_event(handle.handle).record(session.streams[0])
    session.submit(Record(event=next(numbers), blocking=True))
    gone = IpcEventHandle(device="", generation=0, pid=handle.pid, started=1, handle=handle.handle)
    with pytest.raises(GpuRefStale):
        session.submit(OpenIpcHandle(event=next(numbers), handle=gone.as_bytes().hex()))


def test_pages_are_moved_from_the_first_byte_to_the_last(session: HostSession, driver: HostDriver) -> None:
    x = session.submit(Allocate(shape=(10, 100), dtype="f32"))
    session.submit(Fill(out=x, fill_value=1.0))
    session.submit(Prefetch(x=x, to="host"))
    session.submit(Prefetch(x=x[2:4, 10:20]))
    session.submit(Prefetch(x=x[:0]))
    assert driver.prefetched == [(4000, CPU_DEVICE), (440, session.device.native)]
    session.submit(Advise(x=x))
    session.submit(Advise(x=x, advice="preferred_location", location="host"))
    session.submit(Advise(x=x, advice="accessed_by", unset=True))
    assert driver.advised == [(4000, 1, 0), (4000, 3, CPU_DEVICE), (4000, 6, 0)]
    with pytest.raises(OutOfMemory, match="are free"):
        session.submit(Allocate(shape=(1 << 31,), dtype="u8"))  # the stand-in has 1 GiB
    with pytest.raises(UnsupportedOp, match="not in managed memory"):
        session.submit(Prefetch(x=session.put(np.zeros(3))))


def test_shared_memory_is_exported_and_opened_by_handles(session: HostSession, driver: HostDriver) -> None:
    x = session.submit(ipc.Empty(shape=(4, 5)))
    session.submit(Fill(out=x, fill_value=2.0))
    handle = session.submit(ipc.GetMemHandle(x=x[1:]))
    assert (handle.offset, handle.nbytes, handle.shape) == (20, 80, (3, 5))
    memory = session.device.open_shared(handle.handle, handle.nbytes)
    assert driver.opened == [memory.address]
    session.device.release(memory)
    assert driver.opened == []
    del x
    assert session.device.shared == []
