"""Queries for the ops a backend executes."""

from typing import Any, Protocol

from callboard.core import registry
from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.op import Op, info_of

__all__ = ["supports"]


class Opened(Protocol):
    """A device that is open, blocking or not."""

    @property
    def backend(self) -> str: ...


def supports(op: type[Op[Any, Any]], dtype: DTypeLike | None = None, device: "str | Opened" = "auto") -> bool:
    """True if the backend of a device executes a message class, with a dtype of its first operand.

    The answer follows from the declarations of the message and the backend. Certain shapes, strides and settings can
    still be refused, at the call, before anything is sent.

    Args:
        op: The class, ``callboard.kernel.blas.Gemm``.
        dtype: None for any dtype.
        device: An open device, or a name as for :meth:`System.device`.

    Raises:
        BackendUnavailable: The device cannot be used here.
    """
    backend = registry.resolve(device)[0] if isinstance(device, str) else registry.backend(device.backend)
    library = backend.libraries().get(info_of(op).library)
    if library is None or op not in library.launch_table:
        return False
    return dtype is None or as_dtype(dtype) in library.dtypes_of(op)
