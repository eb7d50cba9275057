"""Translation of CUDA driver statuses: one table from ``CUresult`` to callboard's errors."""

from callboard.core.errors import AccelError, ContextPoisoned, DriverError, OutOfMemory, Unrecoverable

__all__ = ["INVALID_CONTEXT", "NOT_READY", "SUCCESS", "error_of", "name_of"]

SUCCESS = 0
NOT_READY = 600
INVALID_CONTEXT = 201

# NVIDIA on these (but for 710, 4, 709 and 999): "leaves the process in an inconsistent state and any further CUDA work
# will return the same error; the process must be terminated and relaunched". Measured: neither destroying the context
# nor resetting the primary one helps, and a second context of the process is dead too.
POISON = {
    4: "CUDA_ERROR_DEINITIALIZED",
    226: "CUDA_ERROR_CONTAINED",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    702: "CUDA_ERROR_LAUNCH_TIMEOUT",
    709: "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    710: "CUDA_ERROR_ASSERT",
    714: "CUDA_ERROR_HARDWARE_STACK_ERROR",
    715: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    716: "CUDA_ERROR_MISALIGNED_ADDRESS",
    717: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    718: "CUDA_ERROR_INVALID_PC",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    721: "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    810: "CUDA_ERROR_MPS_CLIENT_TERMINATED",
    911: "CUDA_ERROR_EXTERNAL_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}
# The device, not the context, is at fault: a new process meets the same.
DEVICE_LOST = {214: "CUDA_ERROR_ECC_UNCORRECTABLE", 220: "CUDA_ERROR_NVLINK_UNCORRECTABLE"}
NO_MEMORY = {2: "CUDA_ERROR_OUT_OF_MEMORY"}
# Names of errors that occur before there is a driver to query, and of those that tests and logs name.
OTHERS = {
    1: "CUDA_ERROR_INVALID_VALUE",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    200: "CUDA_ERROR_INVALID_IMAGE",
    INVALID_CONTEXT: "CUDA_ERROR_INVALID_CONTEXT",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    400: "CUDA_ERROR_INVALID_HANDLE",
    500: "CUDA_ERROR_NOT_FOUND",
    NOT_READY: "CUDA_ERROR_NOT_READY",
    701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    712: "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    713: "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    901: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
}
_NAMES = {**POISON, **DEVICE_LOST, **NO_MEMORY, **OTHERS}


def name_of(code: int) -> str:
    """NVIDIA's name of a status, or its number."""
    return _NAMES.get(code, f"CUresult {code}")


def error_of(code: int, call: str, detail: str = "") -> AccelError:
    """The error that a failed driver call means.

    Args:
        code: Status of the call, not 0.
        call: Name of the call.
        detail: Details of the request, and the driver's description of the status.
    """
    text = f"{call}: {name_of(code)} ({code})" + (f": {detail}" if detail else "")
    if code in POISON:
        return ContextPoisoned(text)
    if code in DEVICE_LOST:
        return Unrecoverable(text)
    if code in NO_MEMORY:
        return OutOfMemory(text)
    if code == INVALID_CONTEXT:
        text += "; no context is current on this thread (device.use() makes it so)"
    return DriverError(text, code)
