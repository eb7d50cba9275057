"""Numbers of an op as they arrive at its work: themselves, or 0-d arrays to be read when their turn has come."""

from collections.abc import Callable
from typing import Any

from callboard.backends.cpu.views import viewer
from callboard.core.operand import Operand

__all__ = ["reader"]


def reader(scalar: Any) -> Callable[[Any], Any]:
    """A function from the launch argument of this field to its value: a Python number."""
    if isinstance(scalar, Operand):
        view = viewer(scalar.layout)
        return lambda address: view(address).item()
    return lambda value: value
