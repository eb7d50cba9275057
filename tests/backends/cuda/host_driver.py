"""A stand-in for the CUDA driver whose device memory is host memory and whose streams execute at once.

It emulates our kernels from their argument structures, so that everything but the CUDA C++ itself is exercised.
"""

import ctypes
import itertools
import re
from functools import partialmethod
from typing import Any

import host_array
import host_tensor
import numpy as np
from host_rows import copy_box, copy_plane

from callboard.backends.cuda.blas.addresses import AddressArgs
from callboard.backends.cuda.blas.norms import NormArgs
from callboard.backends.cuda.blas.products import ProductArgs
from callboard.backends.cuda.errors import error_of
from callboard.backends.cuda.fft.callbacks import PassArgs
from callboard.backends.cuda.fft.linked import PointArgs
from callboard.backends.cuda.fft.scaling import ScaleArgs
from callboard.backends.cuda.launching import CopyArgs, FillArgs, LaunchConfig, TransposeArgs
from callboard.core.dtype import BY_CODE, DTYPES
from callboard.core.errors import AccelError

UUID = bytes(range(16))


class StatusError(Exception):
    """What a binding raises: the library's status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def array_at(address: int, dtype: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    """The array whose element 0 lies at ``address``; steps in elements, of any sign."""
    item = np.dtype(dtype).itemsize
    low = sum((n - 1) * s for n, s in zip(shape, steps, strict=True) if s < 0 and n) * item
    high = sum((n - 1) * s for n, s in zip(shape, steps, strict=True) if s > 0 and n) * item + item
    if 0 in shape:
        return np.empty(shape, dtype)
    buffer = (ctypes.c_char * (high - low)).from_address(address + low)
    return np.ndarray(shape, dtype, buffer, -low, tuple(s * item for s in steps))


class HostDriver:
    """Has the methods of :class:`callboard.backends.cuda.driver.Driver`.

    Attributes:
        blocks: Device memory by address.
        statuses: By name of a method: the status that it answers from now on.
        calls: Names of the asynchronous calls made, in order.
        fresh: What the bytes of new memory are.
        streams: Where something was enqueued; who wants to know empties it before.
        waits: How often a stream was waited for.
        clock: Milliseconds on the device; whatever takes time adds what it takes.
        timed: Of events that take the time: what it was when they were recorded.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, np.ndarray[Any, Any]] = {}
        self.pinned: dict[int, np.ndarray[Any, Any]] = {}
        self.prefetched: list[tuple[int, int]] = []  # bytes, and where to: a device, or -1
        self.advised: list[tuple[int, int, int]] = []  # bytes, advice, of whom
        self.opened: list[int] = []  # blocks of other processes
        self.registered: dict[int, int] = {}
        self.statuses: dict[str, int] = {}
        self.calls: list[str] = []
        self.fresh = 0xFF
        self.streams: set[int] = set()
        self.waits = 0
        self.destroyed: list[int] = []
        self.priorities: list[int] = []
        self.current: int | None = None
        self.stack: list[int | None] = []
        self._ids = itertools.count(0x1000)
        self.functions: dict[int, str] = {}
        self.clock = 0.0
        self.timed: dict[int, float] = {}
        self.data: list[int] = []  # what functions of a user's were given

    def error(self, code: int, call: str) -> AccelError:
        return error_of(code, call)

    def check(self, code: int, call: str) -> None:
        if code:
            raise self.error(code, call)

    def _checked(self, name: str) -> None:
        self.check(self.statuses.get(name, 0), name)

    def _hot(self, name: str) -> int:
        self.calls.append(name)
        return self.statuses.get(name, 0)

    def _enqueued(self, name: str, stream: int) -> int:
        self.streams.add(stream)
        return self._hot(name)

    def on_device(self, address: int, nbytes: int = 1) -> bool:
        """Whether these bytes are device memory."""
        while True:
            try:
                blocks = list(self.blocks.items())
                break
            except RuntimeError:  # a garbage collection has released some meanwhile
                continue
        return any(a <= address and address + nbytes <= a + b.nbytes for a, b in blocks)

    # -- device and context ----------------------------------------------------------------------------------------

    def init(self, flags: int) -> None:
        self._checked("init")

    def device_count(self, out: Any) -> None:
        out._obj.value = 1

    def device_get(self, out: Any, ordinal: int) -> None:
        out._obj.value = ordinal

    def device_uuid(self, out: Any, device: int) -> None:
        out.raw = UUID

    def device_attribute(self, out: Any, attribute: int, device: int) -> None:
        out._obj.value = {75: 9, 76: 0}[attribute]

    def primary_retain(self, out: Any, device: int) -> None:
        self._checked("primary_retain")
        out._obj.value = 0xC0

    def primary_release(self, device: int) -> None:
        self.calls.append("primary_release")

    def set_current(self, context: int | None) -> int:
        self.current = context
        return self.statuses.get("set_current", 0)

    def push_current(self, context: int | None) -> int:
        self.stack.append(self.current)
        return self.set_current(context)

    def pop_current(self, out: Any) -> int:
        out._obj.value, self.current = self.current, self.stack.pop()
        return 0

    def priority_range(self, least: Any, greatest: Any) -> None:
        least._obj.value, greatest._obj.value = 0, -5

    def ctx_synchronize(self) -> int:
        return self._hot("ctx_synchronize")

    # -- memory --------------------------------------------------------------------------------------------------------

    def _allocated(self, where: "dict[int, np.ndarray[Any, Any]]", nbytes: int) -> int:
        raw = np.full(nbytes + 256, self.fresh, np.uint8)
        start = -raw.ctypes.data % 256
        block = raw[start : start + nbytes]
        where[block.ctypes.data] = block
        return int(block.ctypes.data)

    def mem_info(self, free: Any, total: Any) -> None:
        free._obj.value, total._obj.value = 1 << 30, 1 << 34

    def mem_alloc(self, out: Any, nbytes: int) -> None:
        self._checked("mem_alloc")
        out._obj.value = self._allocated(self.blocks, nbytes)

    def mem_alloc_managed(self, out: Any, nbytes: int, flags: int) -> None:
        assert flags == 1
        self.mem_alloc(out, nbytes)

    def mem_prefetch(self, address: int, nbytes: int, where: int, stream: int) -> None:
        assert self.on_device(address, nbytes)
        self.prefetched.append((nbytes, where))
        self._enqueued("mem_prefetch", stream)

    def mem_advise(self, address: int, nbytes: int, advice: int, where: int) -> None:
        assert self.on_device(address, nbytes)
        self.advised.append((nbytes, advice, where))

    def mem_free(self, address: int) -> None:
        del self.blocks[address]

    def ipc_get_handle(self, handle: Any, address: int) -> None:
        self._checked("ipc_get_handle")
        assert address in self.blocks
        handle._obj.reserved[:8] = address.to_bytes(8, "little")

    def ipc_open_handle(self, out: Any, handle: Any, flags: int) -> None:
        self._checked("ipc_open_handle")
        assert flags == 1
        out._obj.value = int.from_bytes(bytes(handle.reserved[:8]), "little")
        self.opened.append(out._obj.value)

    def ipc_close_handle(self, address: int) -> None:
        self.opened.remove(address)

    def ipc_get_event_handle(self, handle: Any, event: int) -> None:
        handle._obj.reserved[:8] = event.to_bytes(8, "little")

    def ipc_open_event(self, out: Any, handle: Any) -> None:
        self._checked("ipc_open_event")
        out._obj.value = int.from_bytes(bytes(handle.reserved[:8]), "little")

    def mem_alloc_host(self, out: Any, nbytes: int) -> None:
        out._obj.value = self._allocated(self.pinned, nbytes)

    def mem_free_host(self, address: int) -> None:
        del self.pinned[address]

    def host_register(self, address: int, nbytes: int, flags: int) -> None:
        assert flags == 1
        self.registered[address] = nbytes

    def host_unregister(self, address: int) -> None:
        del self.registered[address]

    # -- streams and events --------------------------------------------------------------------------------------------

    def stream_create(self, out: Any, flags: int, priority: int) -> None:
        assert flags == 1
        self.priorities.append(priority)
        out._obj.value = next(self._ids)

    def stream_destroy(self, stream: int) -> None:
        self.destroyed.append(stream)

    def stream_synchronize(self, stream: int) -> None:
        self.waits += 1
        self._checked("stream_synchronize")

    def device_resource(self, device: int, out: Any, kind: int) -> None:
        self.check(801, "device_resource")  # and so no context to record in

    def stream_begin_capture(self, stream: int, mode: int) -> None:
        self.check(801, "stream_begin_capture")  # CUDA_ERROR_NOT_SUPPORTED: what is called here is done at once

    def event_create(self, out: Any, flags: int) -> None:
        timing, interprocess = not flags & 2, bool(flags & 4)
        assert not flags & ~7
        assert not (timing and interprocess)
        out._obj.value = event = next(self._ids)
        if timing:
            self.timed[event] = np.nan  # until it is recorded

    def event_destroy(self, event: int) -> None:
        self.timed.pop(event, None)
        self.destroyed.append(event)

    def event_elapsed(self, out: Any, first: int, last: int) -> None:
        self._checked("event_elapsed")
        out._obj.value = self.timed[last] - self.timed[first]

    def event_synchronize(self, event: int) -> None:
        self._checked("event_synchronize")

    def event_query(self, event: int) -> int:
        return self._hot("event_query")

    def stream_query(self, stream: int) -> int:
        return self._hot("stream_query")

    def event_record(self, event: int, stream: int) -> int:
        if event in self.timed:
            self.timed[event] = self.clock
        return self._enqueued("event_record", stream)

    def stream_wait_event(self, stream: int, event: int, flags: int) -> int:
        assert flags == 0
        return self._enqueued("stream_wait_event", stream)

    def launch_host_func(self, stream: int, function: int, data: int) -> None:
        self.streams.add(stream)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(data)

    # -- copies and sets -----------------------------------------------------------------------------------------------

    def memcpy_htod(self, out: int, src: Any, nbytes: int, stream: int) -> int:
        assert self.on_device(out, nbytes)
        ctypes.memmove(out, src, nbytes)
        return self._enqueued("memcpy_htod", stream)

    def memcpy_dtoh(self, out: int, src: int, nbytes: int, stream: int) -> int:
        assert self.on_device(src, nbytes)
        ctypes.memmove(out, src, nbytes)
        return self._enqueued("memcpy_dtoh", stream)

    def memcpy_dtod(self, out: int, src: int, nbytes: int, stream: int) -> int:
        assert self.on_device(src, nbytes)
        assert self.on_device(out, nbytes)
        ctypes.memmove(out, src, nbytes)
        return self._enqueued("memcpy_dtod", stream)

    def memcpy_2d(self, what: int, stream: int) -> int:
        copy_plane(what, self.on_device)
        return self._enqueued("memcpy_2d", stream)

    def memcpy_3d(self, what: int, stream: int) -> int:
        copy_box(what, self.on_device)
        return self._enqueued("memcpy_3d", stream)

    def _memset(self, stream: int, kind: str, out: int, pitch: int, value: int, width: int, height: int) -> int:
        assert value < 1 << 8 * np.dtype(kind).itemsize
        for row in range(height):
            assert self.on_device(out + row * pitch, width * np.dtype(kind).itemsize)
            array_at(out + row * pitch, kind, (width,), (1,))[...] = value
        return self._enqueued("memset", stream)

    def memset_8(self, out: int, value: int, n: int, stream: int) -> int:
        return self._memset(stream, "u1", out, 0, value, n, 1)

    def memset_16(self, out: int, value: int, n: int, stream: int) -> int:
        return self._memset(stream, "u2", out, 0, value, n, 1)

    def memset_32(self, out: int, value: int, n: int, stream: int) -> int:
        return self._memset(stream, "u4", out, 0, value, n, 1)

    def memset_2d_8(self, out: int, pitch: int, value: int, width: int, height: int, stream: int) -> int:
        return self._memset(stream, "u1", out, pitch, value, width, height)

    def memset_2d_16(self, out: int, pitch: int, value: int, width: int, height: int, stream: int) -> int:
        return self._memset(stream, "u2", out, pitch, value, width, height)

    def memset_2d_32(self, out: int, pitch: int, value: int, width: int, height: int, stream: int) -> int:
        return self._memset(stream, "u4", out, pitch, value, width, height)

    # -- kernels -------------------------------------------------------------------------------------------------------

    def module_unload(self, module: int) -> None:
        self.destroyed.append(module)

    def launch_kernel(self, function: int, *arguments: Any) -> int:
        grid, block, stream, params = arguments[0:3], arguments[3:6], arguments[7], arguments[8]
        assert all(n > 0 for n in (*grid, *block))
        assert grid[0] < 2**31
        assert block[0] * block[1] * block[2] <= 1024
        assert stream
        name, _, rest = self.functions[function].partition("_")
        with np.errstate(all="ignore"):  # as on a device
            getattr(self, f"_{name}")(rest, params)
        return self._enqueued(f"kernel {self.functions[function]}", stream)

    def launch_kernel_ex(self, config: int, function: int, params: int, extra: None) -> int:
        given = LaunchConfig.from_address(config)
        assert not given.count
        arguments = *given.grid, *given.block, given.shared, given.stream
        return self.launch_kernel(function, *arguments, (ctypes.c_void_p * 1).from_address(params), extra)

    def _fill(self, kind: str, params: Any) -> None:
        args = FillArgs.from_address(params[0])
        item = int(kind.removesuffix("_wide"))
        value = bytes(args.value)[:item]
        out = array_at(args.out, f"V{item}", tuple(args.extent[: args.axes]), tuple(args.step[: args.axes]))
        assert out.size == args.count
        out[...] = np.frombuffer(value, f"V{item}")[0]

    def _copy(self, kind: str, params: Any) -> None:
        args = CopyArgs.from_address(params[0])
        item, n = int(kind.removesuffix("_wide")), args.axes
        assert (args.src | args.out) % min(item, 8) == 0
        shape = tuple(args.extent[:n])
        out = array_at(args.out, f"V{item}", shape, tuple(args.out_step[:n]))
        assert out.size == args.count
        out[...] = array_at(args.src, f"V{item}", shape, tuple(args.src_step[:n]))

    def _transpose(self, kind: str, params: Any) -> None:
        args = TransposeArgs.from_address(params[0])
        n = args.axes
        shape = (*args.extent[:n], args.rows, args.cols)
        side = 64 if int(kind) < 8 else 32
        assert (args.src | args.out) % min(int(kind), 8) == 0
        assert np.prod(shape[:-2], dtype=int) * -(-args.rows // side) * -(-args.cols // side) == args.tiles
        src = array_at(args.src, f"V{kind}", shape, (*args.src_step[:n], 1, args.src_col))
        array_at(args.out, f"V{kind}", shape, (*args.out_step[:n], args.out_row, 1))[...] = src

    def _pass(self, kind: str, params: Any) -> None:
        """Functions of a user's: whatever their source says, here they double."""
        args = PassArgs.from_address(params[0])
        item = np.dtype(kind)
        assert self.on_device(args.x, args.count * item.itemsize)
        assert self.on_device(args.out, args.count * item.itemsize)
        self.data.append(args.data or 0)
        array_at(args.out, item, (args.count,), (1,))[...] = 2 * array_at(args.x, item, (args.count,), (1,))

    def _point(self, kind: str, params: Any) -> None:
        args = PointArgs.from_address(params[0])
        assert self.on_device(args.cell, 16)
        array_at(args.cell, "u8", (2,), (1,))[...] = args.load or 0, args.store or 0

    def _scale(self, kind: str, params: Any) -> None:
        args = ScaleArgs.from_address(params[0])
        shape, (form, _, name) = tuple(args.extent[: args.axes]), kind.partition("_")
        assert (form == "flat") == (shape == (args.count,) and args.step[0] == 1)
        out = array_at(args.out, DTYPES[name].np, shape, tuple(args.step[: args.axes]))
        assert out.size == args.count
        out *= np.asarray(args.factor, out.dtype)

    def _convert(self, kind: str, params: Any) -> None:
        src, out = (ctypes.c_void_p.from_address(params[i]).value for i in (0, 1))
        source, target = (BY_CODE[ctypes.c_int.from_address(params[i]).value].np for i in (2, 3))
        assert src
        assert out
        array_at(out, target, (1,), (1,))[...] = array_at(src, source, (1,), (1,))

    def _decrement(self, kind: str, params: Any) -> None:
        address = ctypes.c_void_p.from_address(params[0]).value
        assert address
        array_at(address, np.int64, (1,), (1,))[0] -= 1

    def _addresses(self, kind: str, params: Any) -> None:
        args = AddressArgs.from_address(params[0])
        assert 0 < args.count <= len(args.values)
        assert args.out
        assert self.on_device(args.out, 8 * args.count)
        array_at(args.out, np.uint64, (args.count,), (1,))[...] = args.values[: args.count]

    def _asum(self, kind: str, params: Any) -> None:
        self._norm(kind, params, np.abs, lambda sum_: sum_)

    def _nrm2(self, kind: str, params: Any) -> None:
        self._norm(kind, params, np.square, np.sqrt)

    def _norm(self, kind: str, params: Any, of_each: Any, of_sum: Any) -> None:
        p = NormArgs.from_address(params[0])
        assert self.on_device(p.sums, 8 * p.blocks)
        dtype, sums = DTYPES[kind.removesuffix("_end")].np, array_at(p.sums, "f8", (p.blocks,), (1,))
        assert self.on_device(p.out, dtype.itemsize)
        if not kind.endswith("_end"):
            assert self.on_device(p.x, ((p.n - 1) * p.inc + 1) * dtype.itemsize)
            each = of_each(array_at(p.x, dtype, (p.n,), (p.inc,)).astype("f8"))
            sums[...] = [part.sum() for part in np.array_split(each, p.blocks)]
        if kind.endswith("_end") or p.blocks == 1:
            array_at(p.out, dtype, (1,), (1,))[0] = of_sum(sums.sum())

    def _product(self, kind: str, params: Any) -> None:
        p = ProductArgs.from_address(params[0])
        dtype = DTYPES[kind]
        wide: Any = {"i8": np.int64, "c64": np.complex128, "c128": np.complex128}.get(kind, np.float64)
        result: Any = np.int32 if kind == "i8" else dtype.np
        scale: Any = {"f16": np.float32, "bf16": np.float32, "i8": np.int32}.get(kind, dtype.np)
        assert self.on_device(p.alpha)
        assert self.on_device(p.beta)
        alpha, beta = (array_at(x, scale, (1,), (1,)).astype(wide)[0] for x in (p.alpha, p.beta))
        a = array_at(p.a, dtype.np, (p.batch, p.m, p.k), (p.a_batch, p.a_row, p.a_col)).astype(wide)
        b = array_at(p.b, dtype.np, (p.batch, p.k, p.n), (p.b_batch, p.b_row, p.b_col)).astype(wide)
        total = alpha * ((a.conj() if p.conj_a else a) @ (b.conj() if p.conj_b else b)) if alpha else 0
        if beta:
            total = total + beta * array_at(p.c, result, (p.batch, p.m, p.n), (p.c_batch, p.c_row, p.c_col)).astype(
                wide
            )
        array_at(p.out, result, (p.batch, p.m, p.n), (p.out_batch, p.out_row, p.out_col))[...] = total

    def _elementwise(self, kind: str, params: Any) -> None:
        host_tensor.elementwise(host_tensor.Reader(self, array_at, kind), params[0])

    def _across(self, kind: str, params: Any) -> None:
        host_tensor.reduce(host_tensor.Reader(self, array_at, kind), params[0], end=False)

    _along = _across

    def _parts(self, kind: str, params: Any) -> None:
        host_tensor.reduce(host_tensor.Reader(self, array_at, kind), params[0], end=True)

    def _cast(self, kind: str, params: Any) -> None:
        host_array.cast(array_at, kind, params[0])

    def _arange(self, kind: str, params: Any) -> None:
        host_array.arange(array_at, params[0])

    def _within(self, kind: str, params: Any, work: str = "within") -> None:
        host_array.pick(array_at, kind, params[0], work)

    _gather, _scatter = partialmethod(_within, work="gather"), partialmethod(_within, work="scatter")


class HostKernels:
    """In place of :class:`callboard.backends.cuda.kernels.Kernels`."""

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver

    def get(self, source: str, name: str) -> int:
        handle = 0x7000 + len(self._driver.functions)
        self._driver.functions[handle] = f"{name}_{source}" if "=" in source else name
        return handle

    def compile(self, source: str, text: bytes, name: str) -> int:
        real, value = re.findall(rb"typedef (\w+) real;|const (\w+) \*x = ", text)
        kinds = {(b"float", b"real"): "f4", (b"double", b"real"): "f8", (b"float", b"cplx"): "c8"}
        return self.get(source, f"pass_{kinds.get((real[0], value[1]), 'c16')}")

    def linkable(self, source: str, text: bytes) -> bytes:
        return text

    def close(self) -> None:
        self._driver.functions.clear()
