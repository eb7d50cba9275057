"""The CUDA driver's functions that we call, bound once.

They are bound with :mod:`ctypes` to ``libcuda.so.1`` itself, whose versioned symbols are a stable C ABI, and not
through ``cuda.bindings.driver``: that costs a tuple, an enum look-up and handle objects per call on top, and an import.
Every call releases the GIL, also those of a microsecond: it costs 30 ns of 150, and a driver call made *with* the GIL
dead-locks with a Python host function of another library's stream (CuPy's ``launch_host_func`` in a resident actor),
which waits for the GIL under the driver's lock (numba-cuda#317, TensorRT-LLM#15855).

Two kinds of functions: *checked* ones raise; the few on the hot path return the status, which their callers check.
"""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_ushort, c_void_p
from functools import cache
from typing import Any

from callboard.backends.cuda.errors import error_of
from callboard.core.errors import AccelError, BackendUnavailable, UnsupportedOp

__all__ = ["Driver", "IpcHandle", "Memcpy2D", "Memcpy3D", "load_driver"]

EVENT_BLOCKING_SYNC = 1
EVENT_DISABLE_TIMING = 2
EVENT_INTERPROCESS = 4
STREAM_NON_BLOCKING = 1
HOST_REGISTER_PORTABLE = 1
IPC_LAZY_ENABLE_PEER_ACCESS = 1
"""``CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS``; ``cuIpcOpenMemHandle`` requires it."""
CPU_DEVICE = -1
"""``CU_DEVICE_CPU``: the host, as a place for pages of managed memory."""
MEM_ATTACH_GLOBAL = 1
MEMORY_HOST, MEMORY_DEVICE = 1, 2
"""``CU_MEMORYTYPE_HOST``, ``CU_MEMORYTYPE_DEVICE``."""

_Handle = POINTER(c_void_p)


class IpcHandle(ctypes.Structure):
    """``CUipcMemHandle`` and ``CUipcEventHandle``."""

    _fields_ = (("reserved", c_ubyte * 64),)


class Memcpy2D(ctypes.Structure):
    """``CUDA_MEMCPY2D_v2``; extents and pitches in bytes."""

    _fields_ = (
        ("src_x", c_size_t),
        ("src_y", c_size_t),
        ("src_type", c_uint),
        ("src_host", c_void_p),
        ("src_device", c_void_p),
        ("src_array", c_void_p),
        ("src_pitch", c_size_t),
        ("dst_x", c_size_t),
        ("dst_y", c_size_t),
        ("dst_type", c_uint),
        ("dst_host", c_void_p),
        ("dst_device", c_void_p),
        ("dst_array", c_void_p),
        ("dst_pitch", c_size_t),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class Memcpy3D(ctypes.Structure):
    """``CUDA_MEMCPY3D_v2``; widths and pitches in bytes, heights in rows."""

    _fields_ = (
        ("src_x", c_size_t),
        ("src_y", c_size_t),
        ("src_z", c_size_t),
        ("src_lod", c_size_t),
        ("src_type", c_uint),
        ("src_host", c_void_p),
        ("src_device", c_void_p),
        ("src_array", c_void_p),
        ("src_reserved", c_void_p),
        ("src_pitch", c_size_t),
        ("src_height", c_size_t),
        ("dst_x", c_size_t),
        ("dst_y", c_size_t),
        ("dst_z", c_size_t),
        ("dst_lod", c_size_t),
        ("dst_type", c_uint),
        ("dst_host", c_void_p),
        ("dst_device", c_void_p),
        ("dst_array", c_void_p),
        ("dst_reserved", c_void_p),
        ("dst_pitch", c_size_t),
        ("dst_height", c_size_t),
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
    )


# Name in Driver: (symbol, arguments). A checked function raises; a hot one returns its status.
CHECKED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "init": ("cuInit", (c_uint,)),
    "driver_version": ("cuDriverGetVersion", (POINTER(c_int),)),
    "device_count": ("cuDeviceGetCount", (POINTER(c_int),)),
    "device_get": ("cuDeviceGet", (POINTER(c_int), c_int)),
    "device_uuid": ("cuDeviceGetUuid_v2", (c_void_p, c_int)),
    "device_attribute": ("cuDeviceGetAttribute", (POINTER(c_int), c_int, c_int)),
    "primary_retain": ("cuDevicePrimaryCtxRetain", (_Handle, c_int)),
    "primary_release": ("cuDevicePrimaryCtxRelease_v2", (c_int,)),
    "priority_range": ("cuCtxGetStreamPriorityRange", (POINTER(c_int), POINTER(c_int))),
    "mem_info": ("cuMemGetInfo_v2", (POINTER(c_size_t), POINTER(c_size_t))),
    "mem_alloc": ("cuMemAlloc_v2", (_Handle, c_size_t)),
    "mem_free": ("cuMemFree_v2", (c_void_p,)),
    "ipc_get_handle": ("cuIpcGetMemHandle", (POINTER(IpcHandle), c_void_p)),
    "ipc_open_handle": ("cuIpcOpenMemHandle_v2", (_Handle, IpcHandle, c_uint)),
    "ipc_close_handle": ("cuIpcCloseMemHandle", (c_void_p,)),
    "ipc_get_event_handle": ("cuIpcGetEventHandle", (POINTER(IpcHandle), c_void_p)),
    "ipc_open_event": ("cuIpcOpenEventHandle", (_Handle, IpcHandle)),
    "mem_alloc_host": ("cuMemAllocHost_v2", (_Handle, c_size_t)),
    "mem_free_host": ("cuMemFreeHost", (c_void_p,)),
    "host_register": ("cuMemHostRegister_v2", (c_void_p, c_size_t, c_uint)),
    "host_unregister": ("cuMemHostUnregister", (c_void_p,)),
    "stream_create": ("cuStreamCreateWithPriority", (_Handle, c_uint, c_int)),
    "stream_destroy": ("cuStreamDestroy_v2", (c_void_p,)),
    "stream_synchronize": ("cuStreamSynchronize", (c_void_p,)),
    "stream_begin_capture": ("cuStreamBeginCapture_v2", (c_void_p, c_int)),
    "stream_end_capture": ("cuStreamEndCapture", (c_void_p, _Handle)),
    "graph_instantiate": ("cuGraphInstantiateWithFlags", (_Handle, c_void_p, c_ulonglong)),
    "graph_exec_destroy": ("cuGraphExecDestroy", (c_void_p,)),
    "graph_destroy": ("cuGraphDestroy", (c_void_p,)),
    "graph_upload": ("cuGraphUpload", (c_void_p, c_void_p)),
    "graph_nodes": ("cuGraphGetNodes", (c_void_p, c_void_p, POINTER(c_size_t))),
    "graph_node_type": ("cuGraphNodeGetType", (c_void_p, POINTER(c_int))),
    "graph_kernel_node": ("cuGraphKernelNodeGetParams_v2", (c_void_p, c_void_p)),
    "event_create": ("cuEventCreate", (_Handle, c_uint)),
    "event_destroy": ("cuEventDestroy_v2", (c_void_p,)),
    "event_synchronize": ("cuEventSynchronize", (c_void_p,)),
    "event_elapsed": ("cuEventElapsedTime", (POINTER(c_float), c_void_p, c_void_p)),
    "launch_host_func": ("cuLaunchHostFunc", (c_void_p, c_void_p, c_void_p)),
    "module_load_data": ("cuModuleLoadData", (_Handle, c_char_p)),
    "module_get_function": ("cuModuleGetFunction", (_Handle, c_void_p, c_char_p)),
    "module_unload": ("cuModuleUnload", (c_void_p,)),
    "tensor_map_tiled": (
        "cuTensorMapEncodeTiled",
        (c_void_p, c_int, c_uint, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ),
    "func_attribute": ("cuFuncGetAttribute", (POINTER(c_int), c_int, c_void_p)),
    "func_set_attribute": ("cuFuncSetAttribute", (c_void_p, c_int, c_int)),
    "occupancy_blocks": (
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        (POINTER(c_int), c_void_p, c_int, c_size_t),
    ),
    "occupancy_block_size": (
        "cuOccupancyMaxPotentialBlockSize",
        (POINTER(c_int), POINTER(c_int), c_void_p, c_void_p, c_size_t, c_int),
    ),
    "occupancy_clusters": ("cuOccupancyMaxActiveClusters", (POINTER(c_int), c_void_p, c_void_p)),
}
# Checked, too; if the driver is older, calling them raises an error.
NEWER: dict[str, tuple[str, tuple[Any, ...]]] = {
    "mem_alloc_managed": ("cuMemAllocManaged", (_Handle, c_size_t, c_uint)),
    "mem_prefetch": ("cuMemPrefetchAsync", (c_void_p, c_size_t, c_int, c_void_p)),  # the first version: by ordinal
    "mem_advise": ("cuMemAdvise", (c_void_p, c_size_t, c_int, c_int)),
    "device_resource": ("cuDeviceGetDevResource", (c_int, c_void_p, c_int)),
    "resource_desc": ("cuDevResourceGenerateDesc", (_Handle, c_void_p, c_uint)),
    "green_create": ("cuGreenCtxCreate", (_Handle, c_void_p, c_int, c_uint)),
    "green_destroy": ("cuGreenCtxDestroy", (c_void_p,)),
    "func_param_info": ("cuFuncGetParamInfo", (c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t))),
    "green_stream_create": ("cuGreenCtxStreamCreate", (_Handle, c_void_p, c_uint, c_int)),
    "capture_info": (
        "cuStreamGetCaptureInfo_v3",
        (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    ),
    "capture_after": ("cuStreamUpdateCaptureDependencies_v2", (c_void_p, c_void_p, c_void_p, c_size_t, c_uint)),
    "capture_into": ("cuStreamBeginCaptureToGraph", (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int)),
    "graph_add_node": ("cuGraphAddNode_v2", (_Handle, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)),
    "graph_add_empty": ("cuGraphAddEmptyNode", (_Handle, c_void_p, c_void_p, c_size_t)),
    "conditional_handle": ("cuGraphConditionalHandleCreate", (c_void_p, c_void_p, c_void_p, c_uint, c_uint)),
    "function_name": ("cuFuncGetName", (POINTER(c_char_p), c_void_p)),
    "kernel_name": ("cuKernelGetName", (POINTER(c_char_p), c_void_p)),
}
HOT: dict[str, tuple[str, tuple[Any, ...]]] = {
    "set_current": ("cuCtxSetCurrent", (c_void_p,)),
    "push_current": ("cuCtxPushCurrent_v2", (c_void_p,)),
    "pop_current": ("cuCtxPopCurrent_v2", (_Handle,)),
    "ctx_synchronize": ("cuCtxSynchronize", ()),
    "event_query": ("cuEventQuery", (c_void_p,)),
    "stream_query": ("cuStreamQuery", (c_void_p,)),
    "event_record": ("cuEventRecord", (c_void_p, c_void_p)),
    "stream_wait_event": ("cuStreamWaitEvent", (c_void_p, c_void_p, c_uint)),
    "memcpy_htod": ("cuMemcpyHtoDAsync_v2", (c_void_p, c_void_p, c_size_t, c_void_p)),
    "memcpy_dtoh": ("cuMemcpyDtoHAsync_v2", (c_void_p, c_void_p, c_size_t, c_void_p)),
    "memcpy_dtod": ("cuMemcpyDtoDAsync_v2", (c_void_p, c_void_p, c_size_t, c_void_p)),
    "memcpy_2d": ("cuMemcpy2DAsync_v2", (c_void_p, c_void_p)),
    "memcpy_3d": ("cuMemcpy3DAsync_v2", (c_void_p, c_void_p)),
    "memset_8": ("cuMemsetD8Async", (c_void_p, c_ubyte, c_size_t, c_void_p)),
    "memset_16": ("cuMemsetD16Async", (c_void_p, c_ushort, c_size_t, c_void_p)),
    "memset_32": ("cuMemsetD32Async", (c_void_p, c_uint, c_size_t, c_void_p)),
    "memset_2d_8": ("cuMemsetD2D8Async", (c_void_p, c_size_t, c_ubyte, c_size_t, c_size_t, c_void_p)),
    "memset_2d_16": ("cuMemsetD2D16Async", (c_void_p, c_size_t, c_ushort, c_size_t, c_size_t, c_void_p)),
    "memset_2d_32": ("cuMemsetD2D32Async", (c_void_p, c_size_t, c_uint, c_size_t, c_size_t, c_void_p)),
    "graph_launch": ("cuGraphLaunch", (c_void_p, c_void_p)),
    "launch_kernel_ex": ("cuLaunchKernelEx", (c_void_p, c_void_p, c_void_p, c_void_p)),
    "graph_exec_update": ("cuGraphExecUpdate_v2", (c_void_p, c_void_p, c_void_p)),
    "launch_kernel": (
        "cuLaunchKernel",
        (c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_void_p, c_void_p, c_void_p),
    ),
}

Call = Callable[..., int]


class Driver:
    """The bound functions, under the names of :data:`CHECKED`, :data:`NEWER` and :data:`HOT`.

    Handles and addresses are plain ints.
    ``launch_kernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra)`` and the others take the arguments
    of the C functions.

    Args:
        library: ``libcuda``, or something that has its functions.

    Raises:
        BackendUnavailable: A function is missing: the driver is too old.
    """

    init: Call
    driver_version: Call
    device_count: Call
    device_get: Call
    device_uuid: Call
    device_attribute: Call
    primary_retain: Call
    primary_release: Call
    set_current: Call
    push_current: Call
    pop_current: Call
    priority_range: Call
    mem_info: Call
    mem_alloc: Call
    mem_free: Call
    ipc_get_handle: Call
    ipc_open_handle: Call
    ipc_close_handle: Call
    ipc_get_event_handle: Call
    ipc_open_event: Call
    mem_alloc_host: Call
    mem_free_host: Call
    host_register: Call
    host_unregister: Call
    stream_create: Call
    stream_destroy: Call
    stream_synchronize: Call
    stream_begin_capture: Call
    stream_end_capture: Call
    graph_instantiate: Call
    graph_launch: Call
    graph_exec_destroy: Call
    graph_destroy: Call
    graph_upload: Call
    graph_nodes: Call
    graph_node_type: Call
    graph_kernel_node: Call
    graph_exec_update: Call
    event_create: Call
    event_destroy: Call
    event_synchronize: Call
    event_elapsed: Call
    launch_host_func: Call
    module_load_data: Call
    module_get_function: Call
    module_unload: Call
    tensor_map_tiled: Call
    mem_alloc_managed: Call
    mem_prefetch: Call
    mem_advise: Call
    func_attribute: Call
    func_set_attribute: Call
    func_param_info: Call
    occupancy_blocks: Call
    occupancy_block_size: Call
    occupancy_clusters: Call
    launch_kernel_ex: Call
    device_resource: Call
    resource_desc: Call
    green_create: Call
    green_destroy: Call
    green_stream_create: Call
    capture_info: Call
    capture_after: Call
    capture_into: Call
    graph_add_node: Call
    graph_add_empty: Call
    conditional_handle: Call
    function_name: Call
    kernel_name: Call
    ctx_synchronize: Call
    event_query: Call
    stream_query: Call
    event_record: Call
    stream_wait_event: Call
    memcpy_htod: Call
    memcpy_dtoh: Call
    memcpy_dtod: Call
    memcpy_2d: Call
    memcpy_3d: Call
    memset_8: Call
    memset_16: Call
    memset_32: Call
    memset_2d_8: Call
    memset_2d_16: Call
    memset_2d_32: Call
    launch_kernel: Call

    def __init__(self, library: Any) -> None:
        self._library = library
        for name, (symbol, arguments) in HOT.items():
            setattr(self, name, self._bind(symbol, arguments))
        for name, (symbol, arguments) in CHECKED.items():
            function = self._bind(symbol, arguments)
            function.errcheck = self._checker(symbol)
            setattr(self, name, function)
        for name, (symbol, arguments) in NEWER.items():
            if hasattr(library, symbol):
                function = self._bind(symbol, arguments)
                function.errcheck = self._checker(symbol)
            else:
                function = _missing(symbol)
            setattr(self, name, function)

    def error(self, code: int, call: str) -> AccelError:
        """The error that status ``code`` of ``call`` means, in the driver's words."""
        text = c_char_p()
        with suppress(AttributeError):  # only a substitute of tests lacks it
            self._library.cuGetErrorString(c_int(code), ctypes.byref(text))
        return error_of(code, call, (text.value or b"").decode(errors="replace"))

    def check(self, code: int, call: str) -> None:
        """Raise the error of a status that is not 0."""
        if code:
            raise self.error(code, call)

    def _bind(self, symbol: str, arguments: tuple[Any, ...]) -> Any:
        try:
            function = getattr(self._library, symbol)
        except AttributeError:
            raise BackendUnavailable(
                f"the NVIDIA driver has no {symbol}; install a driver for CUDA 12 or later (R525 or later)"
            ) from None
        function.argtypes = arguments
        function.restype = c_int
        return function

    def _checker(self, symbol: str) -> Callable[[int, Any, Any], int]:
        def check(code: int, function: Any, arguments: Any) -> int:
            if code:
                raise self.error(code, symbol)
            return code

        return check


def _missing(symbol: str) -> Call:
    def refuse(*_: Any) -> int:
        raise UnsupportedOp(f"the NVIDIA driver has no {symbol}; install a newer one (R555 or later has all of them)")

    return refuse


@cache
def load_driver() -> Driver:
    """The driver of this machine; loads ``libcuda`` on first use, without initialising it.

    Raises:
        BackendUnavailable: There is no driver, or it is too old.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise BackendUnavailable(f"no CUDA driver: {e}; install the NVIDIA driver of this machine's GPU") from e
    return Driver(library)
