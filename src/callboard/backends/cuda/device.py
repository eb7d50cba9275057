"""An open CUDA device: its primary context, memory and streams."""

import contextlib
import ctypes
import logging
import sys
import threading
import weakref
from ctypes import c_int, c_size_t, c_void_p
from itertools import count
from typing import Any

from callboard.backends.cuda.conditional import CudaConditionals
from callboard.backends.cuda.driver import (
    HOST_REGISTER_PORTABLE,
    IPC_LAZY_ENABLE_PEER_ACCESS,
    MEM_ATTACH_GLOBAL,
    Driver,
    IpcHandle,
    load_driver,
)
from callboard.backends.cuda.errors import INVALID_CONTEXT
from callboard.backends.cuda.graph import GreenContext
from callboard.backends.cuda.kernels import Kernels
from callboard.backends.cuda.marks import CudaMark
from callboard.backends.cuda.readback import SLOT, CudaReadback, Slots
from callboard.backends.cuda.stream import CudaStream
from callboard.core.backend import AccelDevice, AccelStream, DeviceInfo, Memory
from callboard.core.errors import (
    AccelError,
    BackendUnavailable,
    ContextPoisoned,
    DriverError,
    OutOfMemory,
    UnsupportedOp,
)
from callboard.kernel.ipc.library import Shared

__all__ = ["CudaDevice"]

COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
CAPTURE_ERRORS = range(900, 909)

_log = logging.getLogger("callboard.cuda")


class CudaDevice(AccelDevice):
    """A GPU or MIG slice, through its primary context, which CuPy, PyTorch and cuBLAS use too.

    Args:
        info: The device, by its UUID.
        driver: The CUDA driver API; the machine's own driver when None.

    Attributes:
        driver: The CUDA driver API.
        kernels: Kernels of the device, compiled on first use.
        native: Ordinal of the device in this process.

    Raises:
        BackendUnavailable: No driver, or this process does not see the device.
        OutOfMemory: No room for the context.
        DriverError, ContextPoisoned, Unrecoverable
    """

    branches = True

    def __init__(self, info: DeviceInfo, driver: Driver | None = None) -> None:
        self.driver = driver = driver or load_driver()
        try:
            driver.init(0)
        except AccelError as e:
            raise BackendUnavailable(f"the CUDA driver cannot be used: {e}") from e
        self.native = _ordinal(driver, info.uuid)
        context = c_void_p()
        try:
            driver.primary_retain(ctypes.byref(context), self.native)
        except DriverError as e:
            raise BackendUnavailable(f"{info.uuid}: no context can be made: {e}") from e
        self._context: int = context.value or 0
        self._popped = ctypes.byref(c_void_p())
        self._set_current = driver.set_current  # it is called for every op on a loop of others
        self.use()
        capability = (
            self.attribute(COMPUTE_CAPABILITY_MAJOR),
            self.attribute(COMPUTE_CAPABILITY_MINOR),
        )
        self.info = DeviceInfo(info.backend, info.index, info.uuid, info.name, info.total_bytes, capability)
        self.kernels = Kernels(driver, capability, lambda: self.non_blocking_thread != threading.get_ident())
        self._conditionals = CudaConditionals(self, self._context)
        self._slots = Slots(driver)
        self._streams: list[CudaStream] = []
        self._green: GreenContext | None = None
        self._ids = count()
        self._allocated: dict[int, weakref.ref[_Allocation]] = {}  # by address
        self.managed: list[Memory] = []
        self.shared: list[Memory] = []
        least, greatest = c_int(), c_int()
        driver.priority_range(ctypes.byref(least), ctypes.byref(greatest))
        # CUDA's default is its lowest priority; "normal" is one step above, so that "low" means something.
        self._priorities = {-1: least.value, 0: max(least.value - 1, greatest.value), 1: greatest.value}

    def stream(self, priority: int = 0) -> CudaStream:
        stream = CudaStream(self.driver, next(self._ids), self._priorities[max(-1, min(priority, 1))])
        self._streams.append(stream)
        return stream

    def recording_stream(self) -> CudaStream:
        # A stream of the primary context: kernels of libraries other than cuBLAS may keep state per context.
        stream = self.stream()
        stream.describes = stream.recording = True
        return stream

    def conditionals(self) -> CudaConditionals:
        return self._conditionals

    def recorder(self) -> CudaStream:
        """A stream to record on, whatever other threads do with the context; nothing is run on it.

        Raises:
            UnsupportedOp: The driver is older than R555.
            AccelError: It cannot be made.
        """
        if self._green is None:
            self._green = GreenContext(self.driver, self.native)
        stream = CudaStream(self.driver, next(self._ids), 0, self._green.stream())
        self._streams.append(stream)
        return stream

    # -- memory --------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        # cuMemAlloc and not a stream-ordered pool: only its memory can be exported by cuIpcGetMemHandle, and the caller
        # keeps blocks with their own order already, so it is called seldom.
        address = c_void_p()
        try:
            self.driver.mem_alloc(ctypes.byref(address), max(nbytes, 1))
        except OutOfMemory:
            free, total = self.memory_info()
            raise OutOfMemory(
                f"{nbytes:,} bytes on {self.info.uuid}: {free:,} of {total:,} are free (CUDA_ERROR_OUT_OF_MEMORY)"
            ) from None
        return self._owned(address.value or 0, nbytes)

    def _owned(self, address: int, nbytes: int, on_host: bool = False) -> Memory:
        allocation = _Allocation()
        self._allocated[address] = weakref.ref(allocation)
        return Memory(address, nbytes, allocation, on_host)

    def release(self, memory: Memory) -> None:
        if isinstance(memory.owner, _Opened):
            self.detach(memory.address)
            return
        for special in (self.managed, self.shared):
            if memory in special:
                special.remove(memory)
        self._allocated.pop(memory.address, None)
        self.driver.mem_free(memory.address)

    def allocate_managed(self, nbytes: int) -> Memory:
        free, total = self.memory_info()
        if nbytes > free:  # the driver grants more, and thrashes
            raise OutOfMemory(
                f"{nbytes:,} bytes of managed memory on {self.info.uuid}: {free:,} of {total:,} are free, and beyond "
                "that its pages would move to and fro"
            )
        address = c_void_p()
        self.driver.mem_alloc_managed(ctypes.byref(address), max(nbytes, 1), MEM_ATTACH_GLOBAL)
        memory = self._owned(address.value or 0, nbytes, on_host=True)
        self.managed.append(memory)
        return memory

    def allocate_shared(self, nbytes: int) -> Memory:
        memory = self.allocate(nbytes)
        try:
            memory.owner = Shared(memory.owner)
        except BaseException:  # Ctrl-C, too: nothing else frees it
            self.release(memory)
            raise
        self.shared.append(memory)
        return memory

    def exported(self, memory: Memory) -> bytes:
        return self.share(memory)

    def open_shared(self, handle: bytes, nbytes: int) -> Memory:
        return Memory(self.attach(handle), nbytes, _Opened())

    def share(self, memory: Memory) -> bytes:
        if memory.address not in self._allocated:
            raise UnsupportedOp(
                "the array is in memory of torch, CuPy or another package, which another process cannot open; pass a "
                "copy: dev.copy(ref)"
            )
        handle = IpcHandle()
        self.driver.ipc_get_handle(ctypes.byref(handle), memory.address)
        return bytes(handle.reserved)

    def attach(self, handle: bytes) -> int:
        address = c_void_p()
        opened = IpcHandle.from_buffer_copy(handle)
        self.driver.ipc_open_handle(ctypes.byref(address), opened, IPC_LAZY_ENABLE_PEER_ACCESS)
        return address.value or 0

    def detach(self, address: int) -> None:
        self.driver.ipc_close_handle(address)

    def event(self, *, timing: bool, blocking: bool, interprocess: bool) -> CudaMark:
        return CudaMark(self.driver, timing=timing, blocking=blocking, interprocess=interprocess)

    def open_event(self, handle: bytes) -> CudaMark:
        return CudaMark(self.driver, opened=handle)

    def memory_info(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self.driver.mem_info(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def trim(self) -> None:
        for empty in (_empty_torch, _empty_cupy):
            try:
                empty(sys.modules)
            except Exception as e:  # an error of another package; its effect on the context shows at the next call
                _log.warning("a package's memory pool could not be emptied: %s: %s", type(e).__name__, e)

    def register_host(self, address: int, nbytes: int) -> None:
        # Portable: also for contexts of other devices in this process (thread isolation with several devices).
        self.driver.host_register(address, nbytes, HOST_REGISTER_PORTABLE)

    def unregister_host(self, address: int) -> None:
        self.driver.host_unregister(address)

    def read_back(self, stream: AccelStream, address: int, nbytes: int) -> CudaReadback:
        if nbytes > SLOT:
            raise ValueError(f"nbytes is {nbytes}; a readback brings at most {SLOT}")
        slot = self._slots.take()
        code = self.driver.memcpy_dtoh(slot, address, nbytes, stream.native)
        if code:
            self._slots.free.append(slot)
            raise self.driver.error(code, "cuMemcpyDtoHAsync")
        return CudaReadback(self._slots, slot, nbytes)

    # -- the context ---------------------------------------------------------------------------------------------------

    def probe(self) -> Exception | None:
        try:
            self.use()
        except AccelError as e:
            return _sticky(e)
        code = self.driver.ctx_synchronize()
        if code == 0 or code in CAPTURE_ERRORS:
            return None
        return _sticky(self.driver.error(code, "cuCtxSynchronize"))

    def use(self) -> None:
        code = self._set_current(self._context)
        if code:
            raise self.driver.error(code, "cuCtxSetCurrent")

    def enter(self) -> None:
        code = self.driver.push_current(self._context)
        if code:
            raise self.driver.error(code, "cuCtxPushCurrent")

    def leave(self) -> None:
        self.driver.pop_current(self._popped)  # it also returns errors of earlier work, which are checked anyway

    def close(self) -> None:
        if not self._context:
            return
        self.use()
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        if self._green is not None:
            self._green.close()
            self._green = None
        self.kernels.close()
        self._slots.close()
        self.managed.clear()
        self.shared.clear()
        # The context survives if CuPy or torch share it, so the remaining memory is released here; what was lent and is
        # still held, when its last holder lets go, and the context after it.
        held = _Held(self.driver, self._context, self.native)
        for address, allocation in self._allocated.items():
            owner = allocation()
            if owner is None:
                self.driver.mem_free(address)
            else:
                held.add(address, owner)
            del owner
        self._allocated.clear()
        self._context = 0
        held.seal()
        self.driver.set_current(None)  # on the caller's own thread, other code must not use a closed context

    def attribute(self, attribute: int) -> int:
        """A ``CUdevice_attribute``."""
        value = c_int()
        self.driver.device_attribute(ctypes.byref(value), attribute, self.native)
        return value.value


class _Opened:
    """The owner of memory opened from another process."""

    __slots__ = ()


class _Allocation:
    """The owner of a block's :class:`Memory`; while it lives, the block may be in use."""

    __slots__ = ("__weakref__",)


class _Held:
    """Memory that others hold when a device is closed: freed by its last holders, and the context with the last of it.

    Args:
        driver: The CUDA driver API.
        context: The primary context, retained until here.
        ordinal: Its device.
    """

    def __init__(self, driver: Driver, context: int, ordinal: int) -> None:
        self._driver = driver
        self._context = context
        self._ordinal = ordinal
        self._left = 1  # the device itself, until it is sealed
        self._lock = threading.RLock()  # re-entrant: a garbage collection inside it may free

    def add(self, address: int, owner: _Allocation) -> None:
        """Free this memory when its owner has gone."""
        with self._lock:
            self._left += 1
        weakref.finalize(owner, self._free, address).atexit = False  # the driver has all at the end of the process

    def seal(self) -> None:
        """The device is closed."""
        self._forget()

    def _free(self, address: int) -> None:
        """Runs on any thread, also inside a garbage collection."""
        driver = self._driver
        with contextlib.suppress(AccelError):  # the context is dead, and its memory with it
            code = driver.push_current(self._context)
            if not code:
                try:
                    driver.mem_free(address)
                finally:
                    driver.pop_current(ctypes.byref(c_void_p()))
        self._forget()

    def _forget(self) -> None:
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self._driver.primary_release(self._ordinal)


def _ordinal(driver: Driver, uuid: str) -> int:
    """Return the ordinal in this process of the device with this UUID."""
    number = c_int()
    driver.device_count(ctypes.byref(number))
    seen = []
    for ordinal in range(number.value):
        device = c_int()
        driver.device_get(ctypes.byref(device), ordinal)
        raw = ctypes.create_string_buffer(16)
        driver.device_uuid(raw, device.value)
        seen.append(raw.raw.hex())
        if seen[-1] == uuid.partition("-")[2].replace("-", "").lower():
            return device.value
    raise BackendUnavailable(
        f"{uuid} is not among the {number.value} device(s) that this process sees; "
        f"CUDA_VISIBLE_DEVICES must name it before CUDA is first used in the process"
    )


def _sticky(error: AccelError) -> Exception | None:
    """Translate the error of a call that can fail only because of an earlier fault; None if the context is alive."""
    if isinstance(error, OutOfMemory):
        return None
    if isinstance(error, DriverError) and error.code != INVALID_CONTEXT:
        _log.warning("probe: %s; taken for a dead context", error)
    return ContextPoisoned(str(error)) if isinstance(error, DriverError) else error


def _empty_torch(modules: Any) -> None:
    torch = modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _empty_cupy(modules: Any) -> None:
    cupy = modules.get("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
