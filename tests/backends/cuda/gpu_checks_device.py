"""The device's methods on a GPU, and a real fault in a child process."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from gpu_checks import check, each, per_call, values

from callboard.backends.cuda import backend
from callboard.core.errors import ContextPoisoned, OutOfMemory
from callboard.kernel import blas
from callboard.testing.session import LibrarySession


@check
def enumeration(s: LibrarySession) -> str:
    infos = backend.devices()
    assert infos[0].uuid == s.device.info.uuid
    assert s.device.info.compute_capability == infos[0].compute_capability
    assert backend.environment(infos[0]) == {"CUDA_VISIBLE_DEVICES": infos[0].uuid}
    return "; ".join(f"{i.index} {i.uuid} {i.name} {i.total_bytes >> 20} MiB cc {i.compute_capability}" for i in infos)


@check
def memory_info_allocate_release(s: LibrarySession) -> str:
    free, total = s.device.memory_info()
    block = s.device.allocate(1 << 28)
    assert block.address % 256 == 0
    assert s.device.memory_info()[0] <= free - (1 << 28)
    s.device.release(block)
    s.device.release(s.device.allocate(0))
    return f"{free >> 20} of {total >> 20} MiB free"


@check
def out_of_memory_is_typed(s: LibrarySession) -> str:
    try:
        s.device.allocate(1 << 50)
    except OutOfMemory as e:
        assert s.device.probe() is None
        return str(e)
    raise AssertionError("a petabyte was allocated")


@check
def streams_events_priorities(s: LibrarySession) -> str:
    low, normal, high = (s.device.stream(p) for p in (-1, 0, 1))
    event = normal.record()
    high.wait(event)
    event.synchronize()
    assert event.query()
    normal.recycle(event)
    assert normal.record() is event
    for stream in (low, normal, high):
        stream.synchronize()
        stream.close()
    return str(s.device._priorities)


@check
def one_stream_waits_for_another(s: LibrarySession) -> None:
    first, second = s.device.stream(), s.device.stream()
    a = s.put(values((4096, 4096), "f32"))
    out = s.empty((4096, 4096))
    library = s._library("blas")
    plan = library.plan_gemm(blas.Gemm(a=a, b=a, out=out))
    for _ in range(4):
        library.gemm(first, plan, a.address, a.address, out.address, None, 1.0, 0.0)
    event = first.record()
    pending = not event.query()
    second.wait(event)
    behind = second.record()
    behind.synchronize()
    assert event.query()
    assert pending, "the product was done before its event could be looked at; nothing was shown"
    library.cublas.bind(s._streams["blas"])
    first.close()
    second.close()


@check
def read_back(s: LibrarySession) -> str:
    x = s.put(np.arange(16, dtype=np.float64))
    stream = s._streams["memory"]
    many = [s.device.read_back(stream, x.address + 8 * (i % 16), 8) for i in range(3000)]
    stream.synchronize()
    for i, one in enumerate(many):
        assert np.frombuffer(one.take(), "f8")[0] == i % 16
    cost = per_call(lambda: s.device.read_back(stream, x.address, 8), stream.synchronize)
    return f"enqueue {cost}"


@check
def signal_posts_a_semaphore(s: LibrarySession) -> str:
    libc = ctypes.CDLL(None)
    libc.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    libc.sem_wait.argtypes = [ctypes.c_void_p]
    room = ctypes.create_string_buffer(64)
    semaphore = ctypes.addressof(room)
    libc.sem_init(semaphore, 0, 0)
    stream = s._streams["memory"]
    assert stream.signal(semaphore)
    libc.sem_wait(semaphore)
    start = time.perf_counter()
    stream.signal(semaphore)
    libc.sem_wait(semaphore)
    return f"{(time.perf_counter() - start) * 1e6:.1f} us from signal to wake"


@check
def registered_memory_copies_at_the_speed_of_the_link(s: LibrarySession) -> str:
    host = np.ones(1 << 28, np.uint8)
    start = time.perf_counter()
    s.device.register_host(host.ctypes.data, host.nbytes)
    took = time.perf_counter() - start
    block = s.device.allocate(host.nbytes)
    stream, driver = s._streams["memory"], s.device.driver
    rates = []
    for copy in (
        lambda: driver.memcpy_htod(block.address, host.ctypes.data, host.nbytes, stream.native),
        lambda: driver.memcpy_dtoh(host.ctypes.data, block.address, host.nbytes, stream.native),
    ):
        for _ in range(3):
            start = time.perf_counter()
            assert copy() == 0
            stream.synchronize()
            rate = host.nbytes / (time.perf_counter() - start) / 1e9
        rates.append(rate)
    s.device.unregister_host(host.ctypes.data)
    s.device.release(block)
    return f"register {took * 1e3:.0f} ms for 256 MiB, {rates[0]:.1f} GB/s up, {rates[1]:.1f} GB/s down"


@check
def probe_use_trim(s: LibrarySession) -> None:
    assert s.device.probe() is None
    s.device.use()
    s.device.trim()


# -- a real fault, in a child ------------------------------------------------------------------------------------------

FAULTS = {
    "illegal": 'extern "C" __global__ void bad(int* p) { p[0x7fffffffffLL] = 1; }',
    "trap": 'extern "C" __global__ void bad(int* p) { asm("trap;"); }',
}


def fault(kind: str) -> None:
    """In the child: poison the context and say how each way of asking sees it."""
    from callboard.backends.cuda.compiling import Job, architecture, compile_now, load_nvrtc

    device = backend.open(backend.devices()[0])
    stream = device.stream()
    nvrtc = load_nvrtc()
    job = Job("bad.cu", FAULTS[kind].encode(), *architecture(nvrtc, device.info.compute_capability))
    image = compile_now(nvrtc, job).image
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    device.driver.module_load_data(ctypes.byref(module), image)
    device.driver.module_get_function(ctypes.byref(function), module.value, b"bad")
    memory = device.allocate(4096)
    argument = ctypes.c_void_p(memory.address)
    params = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    assert device.probe() is None
    assert device.driver.launch_kernel(function.value, 1, 1, 1, 1, 1, 1, 0, stream.native, params, None) == 0
    event = stream.record()
    start = time.perf_counter()
    try:
        while not event.query():
            if time.perf_counter() - start > 20:
                raise AssertionError("20 s without an answer")
        raise AssertionError("the event was reached")
    except ContextPoisoned as e:
        print(f"query after {time.perf_counter() - start:.3f} s: ContextPoisoned: {e}")
    found = device.probe()
    assert isinstance(found, ContextPoisoned), repr(found)
    print(f"probe: {found!r}")
    for name, call in (("synchronize", stream.synchronize), ("allocate", lambda: device.allocate(16))):
        try:
            call()
            raise AssertionError(f"{name} worked")
        except ContextPoisoned:
            print(f"{name}: ContextPoisoned")
    sys.stdout.flush()
    os._exit(0)


@each(FAULTS)
def a_fault_in_a_child(s: LibrarySession, kind: str) -> str:
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("smoke_gpu.py")), "--fault", kind],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout.strip().replace("\n", " | ")
