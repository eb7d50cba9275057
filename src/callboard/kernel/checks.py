"""What the checks of all libraries share: the error of an operand or setting that does not fit."""

from typing import Any

from callboard.core.errors import ShapeError
from callboard.core.op import Op

__all__ = ["AnyOp", "refuse"]

AnyOp = Op[Any, Any]


def refuse(op: AnyOp, why: str) -> ShapeError:
    """The error for ``op``, to be raised."""
    return ShapeError(f"{type(op).__struct_config__.tag}: {why}")
