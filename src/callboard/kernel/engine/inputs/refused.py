"""``InputRefused``: inputs of a call that a model cannot be computed of; and what ONNX Runtime says of them."""

import re
from collections.abc import Sequence

from callboard.core.errors import AccelError, LibraryError, ShapeError

__all__ = ["MOST_NAMES", "InputRefused", "cure", "runtime_error"]

STATUS = re.compile(r"while running (\w+) node\. Name:'(.*?)' Status Message: (.*)", re.DOTALL)
SOURCE = re.compile(r"^\S+\.(?:cc|h):\d+ (?:[^()]*\([^)]*\)(?: \[with [^\]]*\])? )?")
"""Where in ONNX Runtime's source it failed: path, line, signature."""
MOST_NAMES = 6


class InputRefused(ShapeError):
    """A model cannot be computed of these inputs: a value or a shape fits no node. It was built, so others can be.

    Nothing but this call has failed: the device and other calls are not touched.
    """


def cure(inputs: Sequence[str]) -> str:
    """What the caller can change, for the end of an error.

    Args:
        inputs: Names of the inputs that a node is computed of.
    """
    names = ", ".join(map(repr, inputs[:MOST_NAMES])) + (", …" if len(inputs) > MOST_NAMES else "")
    return f"pass other values or another shape of the input{'s' if len(inputs) > 1 else ''} {names}"


def runtime_error(error: Exception, title: str, inputs: Sequence[str]) -> AccelError:
    """The error of an execution by ONNX Runtime on the CPU, whose own errors have no common base.

    A node of a session that was opened fails by its inputs, or because it is not implemented for them. The first is a
    ``ShapeError``, which hosts can send, as other ops raise it where values on a device decide.

    Args:
        error: ONNX Runtime's.
        title: Name of the model.
        inputs: Names of the model's inputs.
    """
    found = STATUS.search(str(error))
    if found is None or "implemented" in found[3]:
        return LibraryError(f"engine.execute({title}): {error}", "onnxruntime")
    node, name, why = found.groups()
    why = SOURCE.sub("", why.strip())
    return ShapeError(f"{title}: node {node}{f' ({name})' if name else ''}: {why.rstrip('. ')}; {cure(inputs)}")
