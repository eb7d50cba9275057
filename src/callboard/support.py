"""Which ops a backend executes."""

from typing import Any

from callboard.core import registry
from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.op import Op, info_of

__all__ = ["supports"]


def supports(op: type[Op[Any, Any]], dtype: DTypeLike | None = None, device: str = "auto") -> bool:
    """Whether the backend of a device has an implementation of a message class, for a dtype of its first operand.

    Shapes and settings can still be refused: calling the op says so, before anything is sent.

    Args:
        op: The class, ``callboard.kernel.blas.Gemm``.
        dtype: None: for any.
        device: As :meth:`System.device` takes it.

    Raises:
        BackendUnavailable: The device cannot be used here.
    """
    backend, _ = registry.resolve(device)
    library = backend.libraries().get(info_of(op).library)
    launch = None if library is None else library.launch_table.get(op)
    return launch is not None and (dtype is None or launch.dtypes is None or as_dtype(dtype) in launch.dtypes)
