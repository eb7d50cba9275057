"""What ONNX Runtime says of a failed execution on CUDA, as callboard's errors."""

import re
from collections.abc import Sequence

from callboard.backends.cuda.errors import error_of
from callboard.core.errors import AccelError, OutOfMemory
from callboard.kernel.engine.inputs.refused import runtime_error

__all__ = ["execution_error"]

STATUS = re.compile(r"\bCUDA (?:failure|error) (\d+)")
"""A status of the CUDA runtime; those that this has in common with the driver have one number."""
NO_ROOM = re.compile(r"Failed to allocate memory|Available memory of|STATUS_ALLOC_FAILED", re.IGNORECASE)


def execution_error(error: Exception, title: str, inputs: Sequence[str], limit: int) -> AccelError:
    """The error of an execution.

    Args:
        error: ONNX Runtime's.
        title: Name of the model.
        inputs: Names of the model's inputs.
        limit: Bytes that its session may take.
    """
    text, call = str(error), f"engine.execute({title})"
    status = STATUS.search(text)
    if NO_ROOM.search(text) or (status is not None and status[1] == "2"):
        return OutOfMemory(f"{call}: ONNX Runtime finds no memory; a session takes at most {limit:,} bytes: {text}")
    if status is not None:
        return error_of(int(status[1]), call, text)
    return runtime_error(error, title, inputs)
