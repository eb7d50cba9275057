"""What ONNX Runtime says of failures on CUDA, as callboard's errors."""

import re
from collections.abc import Sequence

from callboard.backends.cuda.errors import error_of
from callboard.core.errors import AccelError, OutOfMemory
from callboard.kernel.engine.inputs.refused import runtime_error

__all__ = ["device_error", "execution_error"]

STATUS = re.compile(r"\bCUDA (?:failure|error) (\d+)")
"""A status of the CUDA runtime; those that this has in common with the driver have one number."""
NO_ROOM = re.compile(r"Failed to allocate memory|Available memory of|STATUS_ALLOC_FAILED", re.IGNORECASE)


def device_error(error: Exception, call: str, limit: int) -> AccelError | None:
    """The error of a call that failed by the device; None if it did not.

    Args:
        error: ONNX Runtime's.
        call: What was called.
        limit: Bytes that a session may take.
    """
    text = str(error)
    status = STATUS.search(text)
    if NO_ROOM.search(text) or (status is not None and status[1] == "2"):
        return OutOfMemory(f"{call}: ONNX Runtime finds no memory; a session takes at most {limit:,} bytes: {text}")
    return None if status is None else error_of(int(status[1]), call, text)


def execution_error(error: Exception, title: str, inputs: Sequence[str], limit: int) -> AccelError:
    """The error of an execution.

    Args:
        error: ONNX Runtime's.
        title: Name of the model.
        inputs: Names of the model's inputs.
        limit: Bytes that its session may take.
    """
    return device_error(error, f"engine.execute({title})", limit) or runtime_error(error, title, inputs)
